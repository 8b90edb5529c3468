"""Counts who uses native memory from other threads, so that it is freed only when nobody does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from caldrix.protocol.errors import Refused


class Guard:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users = 0
        self._closed = False

    @contextmanager
    def use(self) -> Iterator[None]:
        """Inside the block nothing is freed. Raises Refused("unknown_member") when it was closed before."""
        with self._changed:
            if self._closed:
                raise Refused("unknown_member", "the member is being unloaded, or the pool is stopping")
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Let nobody in any more, and wait for who is inside."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._users)
