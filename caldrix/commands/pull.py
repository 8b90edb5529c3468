"""`caldrix pull`: fetch a model, check it, and say where it is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from caldrix.commands.bars import Line
from caldrix.commands.exits import EXIT_DONE, EXIT_FAILED, Stop, say
from caldrix.commands.plain import takes_escapes
from caldrix.commands.table import in_units
from caldrix.models.obtain import pull
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Progress
from caldrix.protocol.text import encodable

STEP_PERCENT: Final = 10


def run_pull(given: argparse.Namespace) -> int:
    """Gives the exit code; the model's file is all of stdout. Raises Stop; KeyboardInterrupt when interrupted."""
    try:
        with _watched(given.reference) as watched:
            path, fetched = pull(given.reference, watched.report, watched.note, given.source, given.sha256)
    except Refused as refusal:
        raise Stop(EXIT_FAILED, refusal.message) from refusal
    except KeyboardInterrupt:
        say(f"interrupted; what came is kept: `caldrix pull {given.reference}` goes on with it")
        raise
    say(f"{given.reference} {'is fetched' if fetched else 'was here already'}: {in_units(path.stat().st_size)}")
    sys.stdout.write(encodable(f"{path}\n"))
    return EXIT_DONE


@contextmanager
def _watched(reference: str) -> Iterator[Watch]:
    watch = Watch(reference)
    try:
        yield watch
    finally:
        watch.stop()


class Watch:
    """A download as a person sees it: a bar on a terminal, else a line for every ten per cent."""

    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._line = Line() if takes_escapes(sys.stderr) else None
        self._told: int | None = None

    def report(self, done: int, total: int) -> None:
        if self._line:
            self._line.show(Progress(type="Progress", id=0, phase="download", done=done, total=total))
        elif total:
            self._tell(min(done, total), total)

    def note(self, sentence: str) -> None:
        self.stop()
        say(sentence)

    def stop(self) -> None:
        if self._line:
            self._line.stop()

    def _tell(self, done: int, total: int) -> None:
        step = done * 100 // total // STEP_PERCENT
        if self._told is not None and step > self._told:
            say(f"{self._reference}: {step * STEP_PERCENT} % of {in_units(total)}")
        self._told = step
