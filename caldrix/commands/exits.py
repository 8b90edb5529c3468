"""Exit codes of the `caldrix` command, and the one way it tells a person what happened."""

from __future__ import annotations

import contextlib
import sys

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 64
EXIT_INTERRUPTED = 130


class Stop(Exception):
    """The command ends with `code`, after the sentence is shown on stderr."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def say(line: str) -> None:
    """A line for the person, on stderr; a closed stderr is no reason to fail."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"caldrix: {line}\n")
        sys.stderr.flush()
