"""A log file that stays bounded, may be shared by several pools, and whose troubles never stop anybody.

Each line is one write to a file opened for appending, so lines of several pools never mix and a killed pool leaves
whole lines. At `MAX_BYTES` the file is put aside as `<name>.1`, that one as `<name>.2`, and the oldest is dropped. Who
puts it aside holds a lock on the full file; the others find, before their next line, that the path names another one.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import stat
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 16 << 20
KEPT: Final = 2
"""Files put aside beside the one being written."""


class LogFile:
    """Appends to `path`, made private to its user. It opens the file anew whenever it has to."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path.absolute()
        self._max_bytes = max_bytes
        self._descriptor: int | None = None

    def write(self, line: str) -> None:
        """Append one line. Raises OSError; the next call opens the file anew."""
        try:
            _write_all(self._ready(), f"{line}\n".encode())
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _ready(self) -> int:
        """The descriptor of the file that the path names now, with room in it."""
        if self._descriptor is None or not self._is_named(self._descriptor):
            self._reopen()
        assert self._descriptor is not None
        if self._is_full(self._descriptor):
            self._put_aside(self._descriptor)
            self._reopen()
        return self._descriptor

    def _reopen(self) -> None:
        self.close()
        with contextlib.suppress(FileExistsError):  # a file in a folder's place: opening says so better
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            return
        with contextlib.suppress(OSError):  # another user's file stays as it is
            os.fchmod(self._descriptor, 0o600)
        if status.st_size and os.pread(self._descriptor, 1, status.st_size - 1) != b"\n":
            _write_all(self._descriptor, b"\n")  # after a line that a full disk cut

    def _is_named(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(descriptor))
        except OSError:
            return False

    def _is_full(self, descriptor: int) -> bool:
        status = os.fstat(descriptor)
        return stat.S_ISREG(status.st_mode) and status.st_size >= self._max_bytes

    def _put_aside(self, descriptor: int) -> None:
        """Under the lock of the full file; nothing to do when another pool was first."""
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not self._is_named(descriptor):
            return
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{age}") for age in range(1, KEPT + 1))]
        for younger, older in reversed(list(itertools.pairwise(names))):
            with contextlib.suppress(FileNotFoundError):
                younger.replace(older)


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
