"""One writer to a log: a lock file that names its holder. The kernel drops the lock when the process ends."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from aerix_server.protocol.outcomes import AerixError
from aerix_server.session.clock import now

_TRIES = 100


@dataclass(frozen=True)
class Holder:
    pid: int | None
    start: str | None
    host: str | None

    def __str__(self) -> str:
        if self.pid is None:
            return "another process"
        return f"process {self.pid} on {self.host} since {self.start}"


class Lock:
    """Held from construction to `release`. Raises AerixError("session_locked"), and OSError."""

    def __init__(self, path: Path, session: str) -> None:
        self._path = path
        self._handle = _acquire(path, session)
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, _own_name(), 0)

    def release(self) -> None:
        """Idempotent. The file goes while the lock is held, so that nobody locks a file that is no longer there."""
        if self._handle < 0:
            return
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._handle)
        self._handle = -1


def holder(path: Path) -> Holder:
    """Whom the lock file names, whether or not the lock is still held."""
    try:
        value = json.loads(path.read_bytes())
        return Holder(int(value["pid"]), str(value["start"]), str(value["host"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder(None, None, None)


def held(path: Path) -> bool:
    """Whether a process holds the lock now."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def locked(session: str, path: Path) -> AerixError:
    """What a second writer is told."""
    return AerixError(
        "session_locked",
        f"The session {session} is in use by {holder(path)}.",
        "Attach to it there, or end that process; a lock of a process that is gone does not block.",
    )


def _acquire(path: Path, session: str) -> int:
    for _ in range(_TRIES):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise locked(session, path) from None
        except OSError:
            os.close(handle)
            raise
        if _is_at(handle, path):
            return handle
        os.close(handle)
    raise AerixError("session_locked", f"The lock of the session {session} changes hands all the time; try again.")


def _is_at(handle: int, path: Path) -> bool:
    """Whether the path still names the opened file: its former holder may have removed it in between."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(handle)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _own_name() -> bytes:
    return json.dumps({"pid": os.getpid(), "start": now(), "host": socket.gethostname()}).encode() + b"\n"
