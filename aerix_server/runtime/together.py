"""Work that runs at one time and ends together: nothing of it outlives its caller, however that ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, TypeVar

Result = TypeVar("Result")
Work = Callable[[], Coroutine[Any, Any, Result]]


async def together(works: Mapping[str, Work[Result]], parallel: int) -> dict[str, Result]:
    """The result of each, by its name; at most `parallel` run at one time.

    Raises what the first of them raised, once all have ended.
    """
    if not works:
        return {}
    places = asyncio.Semaphore(parallel)

    async def one(work: Work[Result]) -> Result:
        async with places:
            return await work()

    tasks = {name: asyncio.create_task(one(work), name=name) for name, work in works.items()}
    try:
        # Not gather: cancelled, it is done with its first task, and the others would be cancelled twice.
        await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
    finally:
        raised = await _let_go(tasks.values())
    if raised:
        raise raised[0]
    return {name: task.result() for name, task in tasks.items()}


async def _let_go(tasks: Collection[asyncio.Task[Result]]) -> list[BaseException]:
    """Cancel those that are not done and wait for their end, also when cancelled meanwhile: none stays behind.

    Each is cancelled once: a second cancel would break off its own ending. Gives what they raised.
    """
    for task in tasks:
        task.cancel()  # Does nothing to one that is done.
    cancelled: asyncio.CancelledError | None = None
    while pending := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as again:
            cancelled = again
    raised = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
    if cancelled is not None:
        raise cancelled
    return raised
