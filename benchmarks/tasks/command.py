"""A command run to its end or to its limit, in a process group of its own, its output kept within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OUTPUT_BYTES: Final = 16 * 1024 * 1024
"""The end of each stream that is kept."""
GRACE_S: Final = 15.0
"""From the interrupt to the kill: time to write a log's end."""
DRAIN_S: Final = 2.0
"""How long the output is still read when something that left the group holds it open."""
_CHUNK: Final = 1 << 16


@dataclass(frozen=True)
class Ended:
    """`code` is negative for a signal. `in_time`: it ended by itself before its limit."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    in_time: bool


async def run(words: Sequence[str], cwd: Path, env: Mapping[str, str], limit_s: float) -> Ended:
    """Run it; at the limit it is interrupted, then killed with all that is left of its group. Raises OSError."""
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=cwd,
        env=dict(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    kept = (bytearray(), bytearray())
    readers = [
        asyncio.create_task(_read(stream, data))
        for stream, data in zip((process.stdout, process.stderr), kept, strict=True)
    ]
    try:
        in_time = await _ended(process, limit_s)
        if not in_time:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            await _ended(process, GRACE_S)
        seconds = time.monotonic() - started
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = await process.wait()
        await asyncio.wait(readers, timeout=DRAIN_S)
        for reader in readers:
            reader.cancel()
    stdout, stderr = (data.decode("utf-8", "replace") for data in kept)
    return Ended(code, stdout, stderr, seconds, in_time)


async def _ended(process: asyncio.subprocess.Process, limit_s: float) -> bool:
    try:
        async with asyncio.timeout(limit_s):
            await process.wait()
    except TimeoutError:
        return False
    return True


async def _read(stream: asyncio.StreamReader, kept: bytearray) -> None:
    while chunk := await stream.read(_CHUNK):
        kept += chunk
        del kept[:-OUTPUT_BYTES]
