"""What the agents of one request share about files: a lock for each, so that no update is lost, and who wrote it last.

Agents run at one time and their tools in threads. Whatever reads a file, decides and writes it back holds the file.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from aerix_server.config.bounds import CANCEL_POLL_S, FILE_TOOL_S

Key = Path | tuple[int, int]


@dataclass(frozen=True)
class Wrote:
    """The last write of a file by an agent: its id, and the digest of the bytes that it left."""

    agent: str
    digest: str


@dataclass
class SharedFiles:
    """One for each request. Every method may be called from any thread; paths are real ones (os.path.realpath)."""

    _locks: dict[Key, threading.Lock] = field(default_factory=dict)
    _wrote: dict[Key, Wrote] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def hold(
        self, real_path: Path, stop: Callable[[], bool] = lambda: False, limit_s: float = FILE_TOOL_S
    ) -> Iterator[None]:
        """Keep every other holder of this file out. Not to be nested.

        `stop` is asked every CANCEL_POLL_S seconds. Raises TimeoutError when it says so, or after `limit_s` seconds.
        """
        deadline = time.monotonic() + limit_s
        with contextlib.ExitStack() as held:
            # The path first: an atomic write gives it a new inode, so the inode alone would let a second holder in.
            held.enter_context(_taken(self._lock(real_path), stop, deadline))
            inode = _inode_of_many_names(real_path)
            if inode is not None:
                held.enter_context(_taken(self._lock(inode), stop, deadline))
            yield

    def wrote(self, real_path: Path, agent: str, digest: str) -> None:
        """Note that `agent` left the file with bytes of this digest."""
        with self._guard:
            self._wrote[_inode_of_many_names(real_path) or real_path] = Wrote(agent, digest)

    def writer(self, real_path: Path) -> Wrote | None:
        """The last write of the file by an agent of this request; None when there was none."""
        with self._guard:
            return self._wrote.get(_inode_of_many_names(real_path) or real_path)

    def _lock(self, key: Key) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())


def _inode_of_many_names(path: Path) -> tuple[int, int] | None:
    """What stands for a file that has further hard links (it is written in place, so this stays); None for others."""
    try:
        seen = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return (seen.st_dev, seen.st_ino) if seen.st_nlink > 1 else None


@contextlib.contextmanager
def _taken(lock: threading.Lock, stop: Callable[[], bool], deadline: float) -> Iterator[None]:
    while not lock.acquire(timeout=CANCEL_POLL_S):
        if stop():
            raise TimeoutError("cancelled")
        if time.monotonic() >= deadline:
            raise TimeoutError("another agent holds the file")
    try:
        yield
    finally:
        lock.release()
