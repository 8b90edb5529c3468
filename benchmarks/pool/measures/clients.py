"""Several clients at once against the same requests one after another, and against a llama-server of as many slots."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Final

from benchmarks.pool import prompts
from benchmarks.pool.bench import Bench
from benchmarks.pool.caldrix_pool import Parts, Pool, ask
from benchmarks.pool.ratio import Ratio, Wanted, quotients
from benchmarks.pool.run import Run
from benchmarks.pool.theirs import Theirs, theirs_for
from caldrix.client.client import PoolClient

NAME: Final = "clients"
TOKENS: Final = 96
MOST: Final = 4
WANTED: Final = {4: Wanted("at least", 1.8)}
WANTED_OF: Final = "qwen2.5-coder-0.5b"
"""The model that the bound was written for."""


async def measure(bench: Bench) -> list[Ratio]:
    """1, 2 and 4 requests, each of its own prompt and client; a round before warms their prompts."""
    pool = await bench.pool()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(await _connect(pool, number)) for number in range(MOST)]
        await _one_by_one(clients)
        together: dict[int, list[float]] = {1: [], 2: [], MOST: []}
        apart: dict[int, list[float]] = {2: [], MOST: []}
        for _ in bench.rounds:
            together[1].append(await _together(clients[:1]))
            for count in apart:
                apart[count].append(await _one_by_one(clients[:count]))
                together[count].append(await _together(clients[:count]))
                bench.say(f"{count} clients: {together[count][-1]:.1f} tok/s, one by one {apart[count][-1]:.1f} tok/s")
        ours = [_ratio(bench, count, together, apart) for count in apart]
        return [*ours, await _against_theirs(bench, clients)]


def _ratio(bench: Bench, count: int, together: dict[int, list[float]], apart: dict[int, list[float]]) -> Ratio:
    sides = {
        "at once, tok/s": together[count],
        "one by one, tok/s": apart[count],
        "one client, tok/s": together[1],
    }
    return bench.ratio(
        NAME,
        f"{count} at once against one by one",
        quotients(together[count], apart[count]),
        sides,
        wanted=WANTED.get(count) if bench.model.name == WANTED_OF else None,
    )


async def _against_theirs(bench: Bench, clients: list[PoolClient]) -> Ratio:
    name = f"{MOST} at once against llama-server -np {MOST}"
    theirs = await theirs_for(bench, [_prompt(number) for number in range(MOST)], slots=MOST)
    ours, others = [], []
    for number in range(bench.plan.repeat + 1):
        mine, other = await _together(clients), await _their_rate(theirs)
        if theirs.reason is not None:
            return bench.missing(NAME, name, theirs.reason)
        bench.say(f"{MOST} clients: {mine:.1f} tok/s, llama-server {other:.1f} tok/s")
        if number:
            ours.append(mine)
            others.append(other)
    sides = {"caldrix, tok/s": ours, "llama-server, tok/s": others}
    return bench.ratio(NAME, name, quotients(ours, others), sides, note="llama-server without a constraint")


async def _their_rate(theirs: Theirs) -> float:
    """Tokens per second of all slots together."""
    before, start = len(theirs.runs), time.perf_counter()
    await theirs.ask_all(range(MOST), TOKENS, ignore_end=True)
    return sum(run.tokens for run in theirs.runs[before:]) / (time.perf_counter() - start)


async def _together(clients: list[PoolClient]) -> float:
    """Tokens per second of all clients together."""
    start = time.perf_counter()
    runs = await asyncio.gather(*(_ask(client, number) for number, client in enumerate(clients)))
    return sum(run.tokens for run in runs) / (time.perf_counter() - start)


async def _one_by_one(clients: list[PoolClient]) -> float:
    start = time.perf_counter()
    runs = [await _ask(client, number) for number, client in enumerate(clients)]
    return sum(run.tokens for run in runs) / (time.perf_counter() - start)


async def _ask(client: PoolClient, number: int) -> Run:
    return await ask(client, _prompt(number), TOKENS, prompts.ENDLESS, "off")


def _prompt(number: int) -> Parts:
    return [("user", prompts.TOPICS[number])]


async def _connect(pool: Pool, number: int) -> PoolClient:
    return await PoolClient.connect(pool.socket, f"client-{number}")
