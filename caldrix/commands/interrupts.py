"""Ctrl-C in a chat: the first one ends what runs, the second one ends the chat."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")


class Interrupted(Exception):
    """What ran was ended by Ctrl-C."""


class Interrupts:
    """`forgive` forgets the interrupts so far: only two in a row end the chat."""

    def __init__(self) -> None:
        self._hits = 0
        self._running: asyncio.Task[Any] | None = None

    def forgive(self) -> None:
        self._hits = 0

    async def ends(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What `work` returns or raises. Raises Interrupted at the first Ctrl-C, KeyboardInterrupt at the second."""
        task = asyncio.create_task(_as_error(work))
        self._running = task
        try:
            return await task
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own and own.cancelling():
                task.cancel()
                raise
        except _Pressed:
            self._hits += 1
        finally:
            self._running = None
        if self._hits > 1:
            raise KeyboardInterrupt
        raise Interrupted

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Inside the block SIGINT is ours."""
        before = signal.getsignal(signal.SIGINT)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._hit)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)

    def _hit(self) -> None:
        self._hits += 1
        if self._running:
            self._running.cancel()


class _Pressed(Exception):
    """Ctrl-C as a key. A KeyboardInterrupt that leaves a task would end the event loop."""


async def _as_error(work: Coroutine[Any, Any, Result]) -> Result:
    try:
        return await work
    except KeyboardInterrupt as error:
        raise _Pressed from error
