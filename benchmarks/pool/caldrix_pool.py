"""A real `caldrix pool` of its own socket and folders, and a generation through its client, timed."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from benchmarks.pool.errors import NotMeasured
from benchmarks.pool.process import gone, made, started
from benchmarks.pool.run import MILLISECONDS, Run
from benchmarks.pool.texts import Arrival
from caldrix.client.client import PoolClient
from caldrix.protocol.errors import CaldrixError
from caldrix.protocol.messages import Constraint, ContextInfo, Delta, Done, Member, Role, Segment

MEMBER: Final = "model"
Parts = Sequence[tuple[Role, str]]
"""A prompt: each segment's role and text."""


@dataclass(frozen=True)
class Pool:
    """A pool that serves one member. `client` is the connection of its main user."""

    socket: Path
    client: PoolClient
    member: Member


@contextlib.asynccontextmanager
async def pool_process(model: Path, folder: Path, flags: Sequence[str]) -> AsyncIterator[Pool]:
    """A pool with `model` loaded, ended on leaving. `folder` holds its socket, its log and its own XDG folders.

    Raises NotMeasured when it does not start.
    """
    made(folder)
    socket = folder / "p.sock"
    command = [sys.executable, "-m", "caldrix", "pool", "--socket", str(socket), "--load", f"{model}={MEMBER}"]
    options = ["--idle-timeout", "0", "--log", str(folder / "pool.log"), *flags]

    async def ready() -> bool:
        try:
            await (await PoolClient.connect(socket, "probe")).aclose()
        except (CaldrixError, OSError):
            return False
        return True

    async with started([*command, *options], _folders(folder), folder / "pool.out", ready) as process:
        async with await PoolClient.connect(socket, "benchmark") as client:
            (member,) = (await client.status()).members
            yield Pool(socket, client, member)
            # Stopped by request, as its users do it: a signal may leave it no time to write its store.
            with contextlib.suppress(CaldrixError):
                await client.stop()
        await gone(process)


async def create(client: PoolClient, parts: Parts) -> ContextInfo:
    """A context of these segments."""
    segments = [Segment(id=f"s{number}", role=role, text=text) for number, (role, text) in enumerate(parts)]
    return await client.create(MEMBER, segments)


async def ask(
    client: PoolClient,
    parts: Parts,
    tokens: int,
    constraint: Constraint | None = None,
    draft: Literal["auto", "off"] = "auto",
) -> Run:
    """A new context and one greedy generation on it; the clock starts before the context is made."""
    start = time.perf_counter()
    context = await create(client, parts)
    try:
        return await timed(client, context.context, tokens, constraint, draft, start)
    finally:
        await client.drop(context.context)


async def timed(
    client: PoolClient,
    context: str,
    tokens: int,
    constraint: Constraint | None = None,
    draft: Literal["auto", "off"] = "auto",
    start: float | None = None,
) -> Run:
    """One greedy generation of at most `tokens`; `start`: its clock began earlier. Raises NotMeasured."""
    begin = time.perf_counter() if start is None else start
    arrivals: list[Arrival] = []
    first, done = 0, None
    frames = client.generate(context, tokens, constraint=constraint, draft=draft)
    async with aclosing(frames):
        async for frame in frames:
            if isinstance(frame, Delta):
                first = first or frame.tokens
                arrivals.append(Arrival(time.perf_counter(), frame.text))
            elif isinstance(frame, Done):
                done = frame
    end = time.perf_counter()
    if done is None or not arrivals:
        raise NotMeasured("the pool's generation gave no text")
    usage = done.usage
    return Run(
        text=done.text,
        tokens=usage.completion_tokens,
        prompt_tokens=usage.prompt_tokens,
        started=begin,
        ended=end,
        arrivals=tuple(arrivals),
        first_tokens=first,
        decode_s=max(done.timing.decode_ms, 1) / MILLISECONDS,
        resumed=usage.recomputed_from,
        forced=usage.forced_tokens,
        drafted=usage.drafted_tokens,
        accepted=usage.accepted_tokens,
    )


def _folders(folder: Path) -> dict[str, str]:
    names = ("CONFIG", "DATA", "STATE", "CACHE")
    folders = {f"XDG_{name}_HOME": folder / name.lower() for name in names} | {"XDG_RUNTIME_DIR": folder / "run"}
    for path in folders.values():
        path.mkdir(exist_ok=True, mode=0o700)
    return {name: str(path) for name, path in folders.items()}
