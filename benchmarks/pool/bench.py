"""What a measurement works with: a model, its pool, a llama-server, a bare loop; each is started when first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.pool.caldrix_pool import Parts, Pool, pool_process
from benchmarks.pool.child import Child, render
from benchmarks.pool.errors import NotMeasured
from benchmarks.pool.llama_server import Build, LlamaServer, server_process
from benchmarks.pool.ratio import Ratio, Unit, Wanted

WINDOW: Final = 4096


@dataclass(frozen=True)
class Model:
    """A model file, and what it is called in the table."""

    name: str
    path: Path


@dataclass(frozen=True)
class Plan:
    """How everything is measured. `threads` None leaves the choice to caldrix; llama-server then gets the same number.

    `build` is the llama-server, or why there is none.
    """

    repeat: int
    threads: int | None
    folder: Path
    build: Build | NotMeasured
    say: Callable[[str], None]


@dataclass
class Bench:
    """One model under measurement. `close` ends every process it started."""

    plan: Plan
    model: Model
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _servers: AsyncExitStack = field(default_factory=AsyncExitStack)
    _pool: Pool | None = None
    _server: LlamaServer | None = None
    _child: Child | None = None

    @property
    def rounds(self) -> range:
        return range(self.plan.repeat)

    @property
    def flags(self) -> list[str]:
        """Of every pool."""
        threads = [] if self.plan.threads is None else ["--threads", str(self.plan.threads)]
        return ["--window", str(WINDOW), *threads]

    async def pool(self) -> Pool:
        """The pool that every measurement of this model shares."""
        if self._pool is None:
            process = pool_process(self.model.path, self.plan.folder / "pool", self.flags)
            self._pool = await self._stack.enter_async_context(process)
            self.say(f"pool: {self._pool.member.threads} threads, window {self._pool.member.window}")
        return self._pool

    async def llama_server(self, slots: int = 1) -> LlamaServer:
        """A server of so many slots; one of another number is ended first. Raises NotMeasured when there is none."""
        if isinstance(self.plan.build, NotMeasured):
            raise self.plan.build
        if self._server is None or self._server.slots != slots:
            threads = (await self.pool()).member.threads
            await self._servers.aclose()
            self._servers, self._server = AsyncExitStack(), None
            process = server_process(self.plan.build, self.model.path, self.plan.folder, threads, WINDOW, slots)
            self._server = await self._servers.enter_async_context(process)
        return self._server

    @property
    def child(self) -> Child:
        """The process of the bare loop."""
        if self._child is None:
            self._child = Child()
            self._stack.callback(self._child.close)
        return self._child

    async def ids(self, prompts: Sequence[Parts]) -> list[list[int]]:
        """The token ids of prompts, from a process that ends before it is in the way."""
        child = Child()
        try:
            return await child.call(render, self.model.path, [list(parts) for parts in prompts])
        finally:
            child.close()

    async def close(self) -> None:
        await self._servers.aclose()
        await self._stack.aclose()

    def say(self, text: str) -> None:
        self.plan.say(f"{self.model.name}: {text}")

    def ratio(
        self,
        measurement: str,
        name: str,
        values: Sequence[float],
        sides: Mapping[str, Sequence[float]],
        *,
        wanted: Wanted | None = None,
        unit: Unit = "×",
        note: str = "",
        texts: Mapping[str, str] | None = None,
    ) -> Ratio:
        """A figure of this model."""
        kept = {label: tuple(side) for label, side in sides.items()}
        return Ratio(measurement, self.model.name, name, tuple(values), unit, wanted, kept, note, texts or {})

    def missing(self, measurement: str, name: str, reason: object, **rest: Any) -> Ratio:
        """A figure that there is a reason not to have."""
        return Ratio(measurement, self.model.name, name, reason=str(reason), **rest)
