"""A server process of a benchmark: started, waited for, ended. Its output goes to a file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.pool.errors import NotMeasured

READY_SECONDS: Final = 600.0
POLL_SECONDS: Final = 0.05
END_SECONDS: Final = 20.0
TAIL_CHARS: Final = 400


@contextlib.asynccontextmanager
async def started(
    command: Sequence[str], env: Mapping[str, str], log: Path, ready: Callable[[], Awaitable[bool]]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process once `ready` says so; it is ended, by force if need be, on leaving.

    Raises NotMeasured when it exits before, with the end of its output, or is not ready within READY_SECONDS.
    """
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **env}, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        await _until(process, ready, command[0], log)
        yield process
    finally:
        await _end(process)


def made(folder: Path) -> None:
    """See that the folder is there."""
    folder.mkdir(parents=True, exist_ok=True)


def free_port() -> int:
    """A port of the loopback that nobody holds just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _until(
    process: asyncio.subprocess.Process, ready: Callable[[], Awaitable[bool]], name: str, log: Path
) -> None:
    end = time.monotonic() + READY_SECONDS
    while not await ready():
        if process.returncode is not None:
            raise NotMeasured(f"{Path(name).name} exited with {process.returncode}: {_tail(log)}")
        if time.monotonic() > end:
            raise NotMeasured(f"{Path(name).name} was not ready within {READY_SECONDS:.0f} s: {_tail(log)}")
        await asyncio.sleep(POLL_SECONDS)


async def gone(process: asyncio.subprocess.Process) -> bool:
    """Wait END_SECONDS for its end; False when it still runs."""
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        return False
    return True


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    if not await gone(process):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _tail(log: Path) -> str:
    text = log.read_text("utf-8", "replace").strip()
    return " ".join(text[-TAIL_CHARS:].split()) or "it said nothing"
