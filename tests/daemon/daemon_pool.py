"""A pool in this process, over an engine without a model, and a way to wait for its state."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from caldrix.client.client import PoolClient
from caldrix.daemon.options import PoolOptions
from caldrix.daemon.server import serve
from tests.daemon.fake_engine import FakeLoader, FakeMember

BOUND_S = 20.0


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a state, within a bound."""
    end = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < end, f"not within {BOUND_S} s: {what}"
        await asyncio.sleep(0.005)


@dataclass
class Served:
    """A running pool. `clients` made by `client` are closed with it."""

    options: PoolOptions
    loader: FakeLoader
    stop: asyncio.Event
    task: asyncio.Task[int]
    stack: contextlib.AsyncExitStack

    @property
    def member(self) -> FakeMember:
        return self.loader.members[0]

    @property
    def socket(self) -> Path:
        return self.options.socket

    async def client(self, client_id: str = "me", fmt: str = "cbor") -> PoolClient:
        client = await PoolClient.connect(self.socket, client_id, fmt, timeout=BOUND_S)  # type: ignore[arg-type]
        return await self.stack.enter_async_context(client)

    async def ended(self) -> int:
        async with asyncio.timeout(BOUND_S):
            return await self.task


@contextlib.asynccontextmanager
async def served(options: PoolOptions, loader: FakeLoader) -> AsyncIterator[Served]:
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(serve(options, loader, stop=stop, ready=ready))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({task, waiting}, timeout=BOUND_S, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()
    try:
        async with contextlib.AsyncExitStack() as stack:
            yield Served(options, loader, stop, task, stack)
    finally:
        for member in loader.members:
            member.release.set()
        stop.set()
        async with asyncio.timeout(BOUND_S):
            await asyncio.wait({task})
