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
SETTLED_S: Final = 180.0
"""A shorter time after the start tells nothing of growth: caches fill, and the allocator has not found its size."""
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


def thirds(samples: Sequence[Sample], warm_s: float) -> list[tuple[str, float, float, float]]:
    """What is watched, its medians in the first and the last third of the time after `warm_s`, and by how much the
    last may be greater; nothing of a run too short to tell."""
    settled = [sample for sample in samples if sample.at >= warm_s]
    if not settled or settled[-1].at - settled[0].at < SETTLED_S:
        return []
    size = len(settled) // 3
    first, last = settled[:size], settled[-size:]
    watched: tuple[tuple[str, int, Callable[[Sample], int]], ...] = (
        ("resident bytes", GROWTH_BYTES, lambda sample: sample.rss),
        ("file descriptors", GROWTH_HANDLES, lambda sample: sample.descriptors),
        ("threads", GROWTH_HANDLES, lambda sample: sample.threads),
    )
    return [
        (what, statistics.median(map(read, first)), statistics.median(map(read, last)), limit)
        for what, limit, read in watched
    ]


def growth(samples: Sequence[Sample], warm_s: float) -> list[str]:
    """What grew, as sentences."""
    return [
        f"{what} grew from {first:.0f} to {last:.0f} (medians of the first and last third)"
        for what, first, last, limit in thirds(samples, warm_s)
        if last - first > limit
    ]
