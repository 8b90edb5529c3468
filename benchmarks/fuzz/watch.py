"""What is watched while a pool is attacked: its memory, descriptors and threads, its status, and an honest client."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import psutil

from benchmarks.fuzz.messages import MEMBER
from caldrix.client.client import PoolClient
from caldrix.protocol.errors import CaldrixError
from caldrix.protocol.messages import Delta, Done, Segment

STATUS_S: Final = 15.0
SAMPLE_S: Final = 1.0
HONEST_FRAME_S: Final = 120.0
GROWTH_BYTES: Final = 12 << 20
GROWTH_HANDLES: Final = 8
FILLING_TEXTS: Final = 8
FILLING_WORDS: Final = 30_000
"""Together more than two million tokens, of which 64 MiB hold about 1,600,000."""
PROMPTS: Final = (
    "Say hello.",
    "Count to ten.",
    "What is a crow?",
    "Name three rivers of Europe, and say where they end.",
)


@dataclass(frozen=True)
class Sample:
    """`at` in seconds since the start, `rss` in bytes."""

    at: float
    rss: int
    descriptors: int
    threads: int


@dataclass
class Watched:
    samples: list[Sample] = field(default_factory=list)
    rests: list[Sample] = field(default_factory=list)
    statuses: int = 0
    slowest_status_s: float = 0.0
    generations: int = 0


async def watch(path: Path, pid: int, watched: Watched, stop: asyncio.Event, blame: Callable[[str], None]) -> None:
    """Ask for the status and take a sample each second, until `stop`."""
    process, start = psutil.Process(pid), time.monotonic()
    try:
        async with await PoolClient.connect(path, "watch", timeout=STATUS_S) as client:
            while not stop.is_set():
                asked = time.monotonic()
                await client.status()
                watched.statuses += 1
                watched.slowest_status_s = max(watched.slowest_status_s, time.monotonic() - asked)
                at, memory = time.monotonic() - start, process.memory_info().rss
                watched.samples.append(Sample(at, memory, process.num_fds(), process.num_threads()))
                await _pause(stop)
    except (CaldrixError, psutil.Error) as error:
        blame(f"the pool does not answer PoolStatus any more: {type(error).__name__}: {error}")


async def fill_caches(path: Path) -> None:
    """See that the member's cache of tokenised texts is full, so that what grows later is no cache."""
    random = Random(1)  # noqa: S311
    async with await PoolClient.connect(path, "filling", timeout=120) as client:
        for _ in range(FILLING_TEXTS):
            text = " ".join(str(random.randrange(10**9)) for _ in range(FILLING_WORDS))
            name = (await client.create(MEMBER, [Segment(id="u", role="user", text=text)])).context
            await client.drop(name)


async def behave(path: Path, watched: Watched, stop: asyncio.Event, blame: Callable[[str], None]) -> None:
    """An honest client: contexts and generations, one after the other, none of which may fail."""
    try:
        async with await PoolClient.connect(path, "honest") as client:
            while not stop.is_set():
                text = PROMPTS[watched.generations % len(PROMPTS)]
                name = (await client.create(MEMBER, [Segment(id="u", role="user", text=text)])).context
                await _generate(client, name)
                await client.drop(name)
                watched.generations += 1
    except (CaldrixError, AssertionError) as error:
        blame(f"the honest client failed at its generation {watched.generations + 1}: {type(error).__name__}: {error}")


async def _generate(client: PoolClient, context: str) -> None:
    said = ""
    async for frame in client.generate(context, 12, frame_timeout=HONEST_FRAME_S):
        if isinstance(frame, Delta):
            said += frame.text
        elif isinstance(frame, Done) and (frame.finish == "cancelled" or frame.text != said):
            raise AssertionError(f"it ended {frame.finish} with {frame.text!r} after {said!r}")


async def _pause(stop: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(SAMPLE_S):
            await stop.wait()
    except TimeoutError:
        return


def thirds(samples: Sequence[Sample]) -> tuple[float, float]:
    """The medians of the resident bytes in the first and the last third: what clients' requests take is in them."""
    size = max(1, len(samples) // 3)
    first, last = (statistics.median(sample.rss for sample in part) for part in (samples[:size], samples[-size:]))
    return first, last


def growth(rests: Sequence[Sample]) -> list[str]:
    """What grew from the first rest to the last, as sentences; none of fewer than two.

    A rest is when every client's contexts have gone: what the pool then holds is its own.
    """
    if len(rests) < 2:
        return []
    first, last = rests[0], rests[-1]
    watched = (
        ("resident bytes", first.rss, last.rss, GROWTH_BYTES),
        ("file descriptors", first.descriptors, last.descriptors, GROWTH_HANDLES),
        ("threads", first.threads, last.threads, GROWTH_HANDLES),
    )
    return [
        f"{what} grew from {before} at the first rest to {after} at the last"
        for what, before, after, limit in watched
        if after - before > limit
    ]
