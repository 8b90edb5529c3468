"""Waiting for work in other threads.

Loading and closing a model run in threads of their own, marked daemon: native code cannot be interrupted, and a pool
that was told to stop must not wait for the end of a load. Short work goes through `asyncio.to_thread`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def in_daemon_thread(function: Callable[[], Result], name: str) -> Result:
    """What `function` returns or raises, from a thread that the process does not wait for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def run() -> None:
        try:
            result = function()
        except BaseException as error:
            call_soon(loop, _settle, future.set_exception, error, future)
        else:
            call_soon(loop, _settle, future.set_result, result, future)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    result = await future
    thread.join()  # it has only to return: after this it holds nothing of what it worked on
    return result


def call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: Any) -> None:
    """`call_soon_threadsafe`, and nothing when the loop has ended: nobody waits for the answer any more."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


async def pulsed(awaitable: Awaitable[Result], beat: Callable[[], None], *, first: float, every: float) -> Result:
    """Await `awaitable`, calling `beat` when `first` seconds have gone by and then each `every` seconds."""
    task = asyncio.ensure_future(awaitable)
    pause = first
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=pause)
            if done:
                return task.result()
            beat()
            pause = every
    finally:
        if not task.done():
            task.cancel()


def is_fault(error: BaseException) -> bool:
    """Whether it is to be answered and logged, not passed on. A panic in native code is one, and is no Exception."""
    passed_on = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_fault, error.exceptions))
    return not isinstance(error, passed_on)


def _settle(settle: Callable[[Any], None], value: Any, future: asyncio.Future[Any]) -> None:
    if not future.done():
        settle(value)
