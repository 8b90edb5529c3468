"""Trying a model out: in a child process that may die, or on a pool that holds it already."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from caldrix.client.client import PoolClient
from caldrix.commands.measure import Ask, Timed, timed, trials, try_speed
from caldrix.engine.api import ServingFlags
from caldrix.protocol.errors import CaldrixError, Refused
from caldrix.protocol.messages import Constraint, Done, Member, Segment

CHILD: Final = (sys.executable, "-m", "caldrix.commands.doctor_child")
TRIAL_TIMEOUT_S: Final = 600.0
"""The longest wait for the next record: a precheck of a large model on a slow disk takes minutes."""
STDERR_KEPT: Final = 2000
LINE_BYTES: Final = 1 << 20

Record = dict[str, Any]


async def in_child(
    reference: str, flags: ServingFlags, used_bytes: int, command: Sequence[str] = CHILD
) -> AsyncIterator[Record]:
    """The child's records; a last one `died` when it ended by itself in a trial, with what is known of it."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, limit=LINE_BYTES
    )
    assert child.stdin and child.stdout and child.stderr
    tail = asyncio.create_task(_tail(child.stderr))
    begun = "start"
    try:
        asked = {"reference": reference, "flags": asdict(flags), "used_bytes": used_bytes}
        with contextlib.suppress(OSError):
            child.stdin.write(json.dumps(asked, default=str).encode())
            await child.stdin.drain()
            child.stdin.close()
        while record := await _next_record(child.stdout):
            begun = record.get("begin", begun)
            if "begin" not in record:
                yield record
        code = await child.wait()
        if code < 0:
            yield {"trial": "died", "during": begun, "how": _signal_name(-code), "said": (await tail)[-300:]}
        elif code > 1:
            yield {"trial": "died", "during": begun, "how": f"exit code {code}", "said": (await tail)[-300:]}
    except TimeoutError:
        yield {"trial": "died", "during": begun, "how": f"no sign of life for {TRIAL_TIMEOUT_S:.0f} s", "said": ""}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # its own precheck, too
        await child.wait()
        tail.cancel()


async def _next_record(stream: asyncio.StreamReader) -> Record | None:
    """None at the end; what is no record, as native code may print, is passed over."""
    while True:
        async with asyncio.timeout(TRIAL_TIMEOUT_S):
            line = await stream.readline()
        if not line:
            return None
        with contextlib.suppress(ValueError):
            if isinstance(record := json.loads(line), dict):
                return record


async def on_pool(path: Path, member: Member) -> AsyncIterator[Record]:
    """The same trials on a pool's member. Other clients may be served beside them, and then they take longer."""
    yield {"trial": "load", "took_ms": None, "member": member.model_dump(mode="json", exclude_none=True)}
    try:
        async with await PoolClient.connect(path, f"caldrix-doctor-{os.getpid()}") as client:
            ask = _asks(client, member.member)
            async for record in trials(ask, member.window):
                yield record
            yield await try_speed(ask, member.threads)
    except Refused as refusal:
        yield {"trial": "refused", "code": refusal.code, "message": refusal.message}
    except CaldrixError as error:
        yield {"trial": "refused", "code": "connection", "message": str(error)}


def _asks(client: PoolClient, member: str) -> Ask:
    async def ask(segments: list[Segment], constraint: Constraint | None, limit: int) -> Timed:
        context = (await client.create(member, segments)).context
        try:
            frames = client.generate(context, limit, constraint=constraint, draft="off")
            async with contextlib.aclosing(frames):
                async for frame in frames:
                    if isinstance(frame, Done):
                        return timed(frame.text, frame.finish, frame.usage, frame.timing)
        finally:
            await client.drop(context)
        raise AssertionError("a generation ends with Done or an exception")

    return ask


async def _tail(stream: asyncio.StreamReader) -> str:
    kept = b""
    while chunk := await stream.read(1 << 16):
        kept = (kept + chunk)[-STDERR_KEPT:]
    return " ".join(kept.decode("utf-8", "replace").split())


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
