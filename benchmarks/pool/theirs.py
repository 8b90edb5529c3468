"""The llama-server's side of a measurement: its runs of the same prompts, or the reason why there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from benchmarks.pool.bench import Bench
from benchmarks.pool.caldrix_pool import Parts
from benchmarks.pool.errors import NotMeasured
from benchmarks.pool.llama_server import complete
from benchmarks.pool.run import Run


@dataclass
class Theirs:
    """`runs` are those made so far; `reason` is None while the server can be asked."""

    bench: Bench
    slots: int
    prompts: list[list[int]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    reason: NotMeasured | None = None

    async def ask(
        self, number: int, tokens: int, schema: Mapping[str, Any] | None = None, ignore_end: bool = False
    ) -> None:
        """One more run, of the prompt of this number; nothing once there is a reason."""
        await self.ask_all([number], tokens, schema, ignore_end)

    async def ask_all(
        self, numbers: Sequence[int], tokens: int, schema: Mapping[str, Any] | None = None, ignore_end: bool = False
    ) -> None:
        """Runs of these prompts at the same time."""
        if self.reason is not None:
            return
        try:
            server = await self.bench.llama_server(self.slots)
            asked = [complete(server, self.prompts[number], tokens, schema, ignore_end) for number in numbers]
            self.runs += await asyncio.gather(*asked)
        except NotMeasured as reason:
            self.reason = reason
        except httpx2.HTTPError as error:
            self.reason = NotMeasured(f"the connection to llama-server broke: {type(error).__name__} {error}")


async def theirs_for(bench: Bench, prompts: Sequence[Parts], slots: int = 1) -> Theirs:
    """The server, started, with the token ids that caldrix makes of the prompts."""
    theirs = Theirs(bench, slots)
    try:
        await bench.llama_server(slots)
        theirs.prompts = await bench.ids(prompts)
    except NotMeasured as reason:
        theirs.reason = reason
    return theirs
