"""The pool's log: one JSON object a line, written by its own thread, so that a slow disk or a full pipe stalls nobody.

A request's line says who asked, how long it took, how many tokens it used and where it resumed. It holds nothing of
prompts or outputs, nor does a failure's: only its kind and its place in the code.
"""

from __future__ import annotations

import contextlib
import json
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from caldrix.daemon.logfile import LogFile
from caldrix.protocol.text import encodable

WAITING_LINES: Final = 10_000
CLOSE_TIMEOUT_S: Final = 2.0

Write = Callable[[str], None]
"""Writes one line; raises OSError or ValueError when it cannot."""


class Log:
    """Lines that cannot be written, or that come while `WAITING_LINES` wait, are lost; the next one says how many.

    The first of several that cannot be written is told of once, by `complain`.
    """

    def __init__(self, write: Write, close: Callable[[], None], complain: Callable[[Exception], None]) -> None:
        self._write = write
        self._close = close
        self._complain = complain
        self._records: queue.Queue[dict[str, Any] | None] = queue.Queue(WAITING_LINES)
        self._turned_away = 0
        self._thread = threading.Thread(target=self._run, name="caldrix-log", daemon=True)
        self._thread.start()

    def event(self, event: str, **facts: Any) -> None:
        """One line; facts that are None are left out. Never blocks and never raises."""
        record: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
        record |= {key: value for key, value in facts.items() if value is not None}
        try:
            self._records.put_nowait(record)
        except queue.Full:
            self._turned_away += 1

    def failure(self, event: str, error: BaseException, **facts: Any) -> None:
        """What went wrong unexpectedly: the exception's kind and the places it passed, not its text."""
        places = [
            f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)
        ]
        self.event(event, error=type(error).__name__, places=places, **facts)

    def close(self) -> None:
        """Write what waits, within a bound, and close the file."""
        try:
            self._records.put(None, timeout=CLOSE_TIMEOUT_S)
        except queue.Full:
            return
        self._thread.join(CLOSE_TIMEOUT_S)
        if not self._thread.is_alive():
            self._close()

    def _run(self) -> None:
        failed = told = 0
        complained = False
        while (record := self._records.get()) is not None:
            lost = failed + self._turned_away - told
            try:
                self._write(to_line(record | ({"lines_lost": lost} if lost else {})))
            except (OSError, ValueError) as error:
                failed += 1
                if not complained:
                    self._complain(error)
                complained = True
            else:
                told += lost
                complained = False


def to_line(record: dict[str, Any]) -> str:
    """The record as one line of JSON; what JSON cannot hold stands as its kind. Pure."""
    return json.dumps(encodable(record), ensure_ascii=False, default=lambda value: f"<{type(value).__name__}>")


def open_log(path: Path | None) -> Log:
    """The log at `path`; None is stderr. A file that cannot be written is told of on stderr, and tried again."""
    if path is None:
        return Log(_to_stderr, lambda: None, lambda error: None)
    file = LogFile(path)
    return Log(file.write, file.close, lambda error: _complain(path, error))


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _complain(path: Path, error: Exception) -> None:
    reason = getattr(error, "strerror", None) or str(error)
    with contextlib.suppress(OSError, ValueError):
        _to_stderr(f"caldrix: cannot write the log {path}: {reason}; requests are served without it until it can be")
