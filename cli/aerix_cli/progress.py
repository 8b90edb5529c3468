"""The progress of a request on stderr: plain lines, or on a terminal one line that changes under them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Any, Final

from aerix_cli.render import event_lines, waiting_line
from aerix_cli.texts import cut_to_width

QUIET_S: Final = 5.0
"""Without a terminal, how long one phase goes on before it is said again."""
_DIM: Final = "\x1b[2m"
_RESET: Final = "\x1b[0m"
_CLEAR: Final = "\r\x1b[2K"


class Progress:
    """Shows events. `quiet` leaves notices and errors; `screen` allows the changing line, `color` dim text."""

    def __init__(self, write: Callable[[str], None], *, quiet: bool, screen: bool, color: bool) -> None:
        self._write = write
        self._quiet = quiet
        self._screen = screen
        self._color = color
        self._live = False
        self._said: tuple[str, float] | None = None

    def show(self, event: dict[str, Any]) -> None:
        if self._quiet and not (event.get("type") == "notice" and event.get("level") != "info"):
            return
        if (waiting := waiting_line(event)) is not None:
            self._wait(str(event.get("phase")), waiting)
            return
        for line in event_lines(event):
            self.line(line, dim=event.get("type") != "notice")

    def line(self, text: str, *, dim: bool = False) -> None:
        """A line that stays."""
        self.clear()
        self._write(f"{_DIM}{text}{_RESET}\n" if dim and self._color else f"{text}\n")

    def clear(self) -> None:
        """Take the changing line away."""
        if self._live:
            self._write(_CLEAR)
            self._live = False

    def _wait(self, phase: str, text: str) -> None:
        if self._screen:
            columns = shutil.get_terminal_size().columns
            self._write(_CLEAR + cut_to_width(text, columns - 1))
            self._live = True
            return
        now = time.monotonic()
        if worth_saying(self._said, phase, now):
            self._said = (phase, now)
            self.line(text, dim=True)


def worth_saying(said: tuple[str, float] | None, phase: str, now: float) -> bool:
    """A new phase at once, the same one every QUIET_S seconds. `said` is what was said last, and when."""
    return said is None or said[0] != phase or now - said[1] >= QUIET_S
