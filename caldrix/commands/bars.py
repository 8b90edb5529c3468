"""Progress bars on stderr: of a model that is loaded, and of a prompt that is read.

A bar never writes to stdout, takes one line of any terminal, and leaves nothing behind. Where a terminal takes no
escapes, a load is told of in lines, one a phase.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Column

from caldrix.commands.exits import say
from caldrix.commands.plain import takes_escapes
from caldrix.commands.table import in_units
from caldrix.protocol.messages import Progress, Queued

NARROW: Final = 60
PATIENCE_S: Final = 0.4
"""A prompt that is read in less time than this gets no bar."""
PHASES: Final = {"download": "downloading", "precheck": "checking", "load": "loading", "prefill": "reading"}


class Pace:
    """The rate of something that is counted up, from its first count on."""

    def __init__(self, done: int, now: float) -> None:
        self._first, self._since = done, now

    def rate(self, done: int, now: float) -> float | None:
        """Per second; None until something was done."""
        return (done - self._first) / (now - self._since) if done > self._first and now > self._since else None


def amount(frame: Progress, rate: float | None, *, narrow: bool) -> str:
    """How far it is, how fast, and how long it takes still. Pure."""
    if frame.phase == "precheck" or not frame.total:
        return ""
    words = [_of(frame, narrow=narrow)]
    if rate and not narrow:
        words.append(f"{rate:.0f} rows/s" if frame.phase == "prefill" else f"{in_units(int(rate))}/s")
    if rate and frame.done < frame.total:
        words.append(f"{clock((frame.total - frame.done) / rate)} left")
    return ", ".join(words)


def _of(frame: Progress, *, narrow: bool) -> str:
    if frame.phase == "prefill":
        return f"{frame.done}/{frame.total}" if narrow else f"{frame.done} of {frame.total} rows"
    if frame.done == 0:  # all there is to know yet
        return in_units(frame.total)
    share = f"{frame.done * 100 // frame.total} %"
    return share if narrow else f"{in_units(frame.done)} of {in_units(frame.total)}"


def clock(seconds: float) -> str:
    """75 → `1:15`. Pure."""
    whole = int(seconds + 0.5)
    hours = f"{whole // 3600}:" if whole >= 3600 else ""
    return f"{hours}{whole % 3600 // 60:0{2 if hours else 1}}:{whole % 60:02}"


class Line:
    """One bar, shown from the first `show` to `stop`; it may be shown again."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._narrow = self._console.width < NARROW
        self._bar: Bar | None = None
        self._phase = ""
        self._pace = Pace(0, 0.0)

    def show(self, frame: Progress) -> None:
        now = time.monotonic()
        if frame.phase != self._phase:
            self._phase, self._pace = frame.phase, Pace(frame.done, now)
        words = amount(frame, self._pace.rate(frame.done, now), narrow=self._narrow)
        moving = frame.total and frame.phase != "precheck" and frame.done > 0
        self._put(PHASES[frame.phase], words, frame.done, frame.total if moving else None)

    def wait(self, words: str) -> None:
        """Something of which nobody knows how far it is."""
        self._put("waiting", words, 0, None)

    def stop(self) -> None:
        if self._bar:
            self._bar.stop()
            self._bar = None

    def _put(self, what: str, words: str, done: int, total: int | None) -> None:
        if self._bar is None:
            width = 10 if self._narrow else 30
            whole = Column(no_wrap=True, overflow="ellipsis")
            words_column = TextColumn("{task.fields[words]}", table_column=whole)
            columns = (TextColumn("{task.description}"), BarColumn(width), words_column)
            self._bar = Bar(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task(what, total=None, words=words)
            self._bar.start()
        self._bar.update(self._task, description=what, completed=done, total=total, words=words)
        if total is None:
            self._bar.tasks[0].total = None  # `update` takes None for "as before"


@contextmanager
def load_progress(reference: str) -> Iterator[LoadReport]:
    """What shows the frames of a load: a bar, a line a phase on a plain terminal, nothing where nobody looks."""
    report = LoadReport(reference)
    try:
        yield report
    finally:
        report.stop()


class LoadReport:
    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._line = Line() if takes_escapes(sys.stderr) else None
        self._told: set[str] = set()

    def __call__(self, frame: Progress) -> None:
        if self._line:
            self._line.show(frame)
        elif sys.stderr.isatty() and frame.phase not in self._told:
            self._told.add(frame.phase)
            say(f"{PHASES[frame.phase]} {self._reference}")

    def stop(self) -> None:
        if self._line:
            self._line.stop()


class PromptReport:
    """The frames of a generation before its first text: a bar, where it takes long and somebody looks."""

    def __init__(self) -> None:
        self._line = Line() if takes_escapes(sys.stderr) else None
        self._since = time.monotonic()

    def __call__(self, frame: Progress | Queued) -> None:
        if self._line is None or time.monotonic() - self._since < PATIENCE_S:
            return
        if isinstance(frame, Progress):
            self._line.show(frame)
        else:
            self._line.wait(f"{frame.position} ahead" if frame.position else "")

    def stop(self) -> None:
        if self._line:
            self._line.stop()
