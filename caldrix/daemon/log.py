"""The pool's log: one JSON object a line, written by its own thread, so that a slow disk or a full pipe stalls nobody.

A request's line says who asked, how long it took, how many tokens it used and where it resumed. It holds nothing of
prompts or outputs, nor does a failure's: only its kind and its place in the code.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from caldrix.daemon.options import CannotStart
from caldrix.protocol.text import encodable

WAITING_LINES = 10_000
CLOSE_TIMEOUT_S = 2.0
OLD_LOG_BYTES = 16 * 1024 * 1024
"""A log of this size is put aside as `<name>.1` when a pool starts; one older one is kept."""


class Log:
    """Lines are dropped while the writer is `WAITING_LINES` behind; the next line says how many."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(WAITING_LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="caldrix-log", daemon=True)
        self._thread.start()

    def event(self, event: str, **facts: Any) -> None:
        """One line; facts that are None are left out."""
        record: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
        record |= {key: value for key, value in facts.items() if value is not None}
        if self._dropped:
            record["lines_lost"] = self._dropped
        try:
            self._lines.put_nowait(json.dumps(encodable(record), ensure_ascii=False))
            self._dropped = 0
        except queue.Full:
            self._dropped += 1

    def failure(self, event: str, error: BaseException, **facts: Any) -> None:
        """What went wrong unexpectedly: the exception's kind and the places it passed, not its text."""
        places = [
            f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)
        ]
        self.event(event, error=type(error).__name__, places=places, **facts)

    def close(self) -> None:
        """Write what waits, within a bound, and close the stream unless it is stderr."""
        try:
            self._lines.put(None, timeout=CLOSE_TIMEOUT_S)
        except queue.Full:
            return
        self._thread.join(CLOSE_TIMEOUT_S)
        if self._stream is not sys.stderr and not self._thread.is_alive():
            self._stream.close()

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                self._dropped += 1


def open_log(path: Path | None) -> Log:
    """The log at `path`, appended to and private to its user; None is stderr. Raises CannotStart."""
    if path is None:
        return Log(sys.stderr)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.is_file() and path.stat().st_size >= OLD_LOG_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CannotStart(f"cannot open the log {path}: {error.strerror}.") from error
    return Log(os.fdopen(descriptor, "w", encoding="utf-8"))
