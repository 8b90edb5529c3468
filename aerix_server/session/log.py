"""Appending to a session's log: one writer, one write for each line, and a disk that fails is an error with a name.

What an earlier writer left without its newline is mended before the first append: a whole event gets its newline, a cut
one is moved to `<id>.cut`. A line of ours that did not fit is taken back, so the log always ends with a whole event.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from pathlib import Path
from typing import Any

from aerix_server.protocol.events import DURABLE_TYPES
from aerix_server.session.clock import now
from aerix_server.session.folders import private_folder
from aerix_server.session.lock import Lock
from aerix_server.session.log_reader import parse_line, parse_log


class LogFailed(OSError):
    """The log cannot be written; the text is a sentence for the user. What was written before still loads."""


class LogWriter:
    """Opens or makes the log and holds its lock. Raises AerixError("session_locked") and LogFailed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notices: list[str] = []
        self._handle = -1
        self._torn = False
        try:
            private_folder(path.parent)
            self._lock = Lock(path.with_suffix(".lock"), path.stem)
        except OSError as error:
            raise _failed(path, error) from error
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._size, self.last_seq = self._mend()
            _sync_folder(path.parent)
        except OSError as error:
            self.close()
            raise _failed(path, error) from error

    def append(self, event: dict[str, Any]) -> dict[str, Any]:
        """Write the event with the next `seq` and the present `time`, and give it so. Raises LogFailed."""
        stamped = {**event, "seq": self.last_seq + 1, "time": now()}
        line = encode_line(stamped)
        try:
            if self._torn:
                os.ftruncate(self._handle, self._size)
                self._torn = False
            self._write(line)
            self._size += len(line)
            self.last_seq += 1
            if stamped["type"] in DURABLE_TYPES:
                os.fsync(self._handle)
        except OSError as error:
            raise _failed(self.path, error) from error
        return stamped

    def close(self) -> None:
        """Idempotent."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        self._lock.release()

    def _write(self, line: bytes) -> None:
        """One write; only a full disk makes it two, and then the second one's error tells why."""
        done = os.write(self._handle, line)
        try:
            while done < len(line):
                done += os.write(self._handle, line[done:])
        except OSError:
            self._take_back()
            raise

    def _take_back(self) -> None:
        self._torn = True
        with contextlib.suppress(OSError):  # The next append tries again before it writes.
            os.ftruncate(self._handle, self._size)
            self._torn = False

    def _mend(self) -> tuple[int, int]:
        """The size and the last seq of the log, once its end is a whole line."""
        data = self.path.read_bytes()
        contents = parse_log(data)
        self.notices += [
            f"{self.path.name}, line {line}: {reason}; it is skipped" for line, reason in contents.problems
        ]
        last_seq = max((event["seq"] for event in contents.events), default=0)
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if not rest:
            return len(data), last_seq
        if parse_line(rest)[0] is not None:
            os.write(self._handle, b"\n")
            return len(data) + 1, last_seq
        self._set_aside(rest)
        os.ftruncate(self._handle, end)
        return end, last_seq

    def _set_aside(self, rest: bytes) -> None:
        aside = self.path.with_suffix(".cut")
        handle = os.open(aside, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(rest + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if rest.strip():
            self.notices[-1] = f"{self.path.name}: its last line was cut off and has been moved to {aside.name}"


def encode_line(event: dict[str, Any]) -> bytes:
    """One line of ASCII JSON. What JSON has no number for is written as null or the largest number."""
    try:
        text = json.dumps(event, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(event), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else math.copysign(1.7976931348623157e308, value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


_REASONS = {
    errno.ENOSPC: "the disk is full; free some space and ask again",
    errno.EDQUOT: "your quota on that disk is used up; free some space and ask again",
    errno.EFBIG: "the file would grow over the largest size allowed here",
    errno.EROFS: "the disk is read-only; set XDG_DATA_HOME to a folder that can be written",
    errno.EACCES: "its folder may not be written; set XDG_DATA_HOME to a folder that can be written",
    errno.EIO: "the disk reports an error",
}


def _failed(path: Path, error: OSError) -> LogFailed:
    reason = _REASONS.get(error.errno or 0, error.strerror or "an unknown error")
    return LogFailed(f"The session's log {path} cannot be written: {reason}.")


def _sync_folder(folder: Path) -> None:
    """So that a new log's name is on the disk as well as its lines."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
