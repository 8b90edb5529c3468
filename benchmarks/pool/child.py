"""Functions that need the engine's library, run in processes of their own: nothing of it is loaded beside the clock."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from caldrix.protocol.messages import Role

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

RENDER_WINDOW = 512


class Child:
    """A process that runs one function after another and keeps what they cache. `close` ends it."""

    def __init__(self) -> None:
        # Spawned, not forked: a copy of a process whose libraries already run threads may hang.
        self._executor = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    async def call(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """What `function`, one of a module's own, gives for values that can be pickled."""
        future = self._executor.submit(function, *args, **kwargs)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)


def render(model: Path, prompts: list[list[tuple[Role, str]]]) -> list[list[int]]:
    """The token ids that caldrix makes of each prompt. Loads the model: call it in a child that ends afterwards."""
    # Only here: importing the engine sets how its threads wait, which the processes started later would inherit.
    from caldrix.engine.api import ServingFlags
    from caldrix.engine.jobs import Part
    from caldrix.engine.member import load_member

    flags = ServingFlags(window=RENDER_WINDOW, threads=1, context_budget=0, max_batch=1)
    member = load_member(str(model), flags, lambda _phase, _done, _total: None, 0)
    try:
        return [list(member.render([Part(role, text) for role, text in prompt]).ids) for prompt in prompts]
    finally:
        member.close()
