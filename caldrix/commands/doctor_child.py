"""The child process of `caldrix doctor REF`: loads the model, tries it, and prints a record a line.

`python -m caldrix.commands.doctor_child` reads one JSON object from stdin: reference, flags, used_bytes. A record
`{"begin": NAME}` comes before each trial, so that the parent knows in which one native code ended this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from caldrix.commands.measure import Ask, Timed, timed, trials, try_constraint, try_speed
from caldrix.engine.api import EngineMember, Loader, ServingFlags
from caldrix.engine.jobs import Failed, Finished, Item, Job, Part
from caldrix.models.machine import usable_cores
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Constraint, Segment, Timing
from caldrix.remote.address import is_remote

Tell = Callable[[dict[str, Any]], None]

SPEED_WINDOW: Final = 1024
SPEED_SECONDS: Final = 90.0
"""After this long no further number of threads is tried."""


def main(load: Loader) -> int:
    """Gives the exit code: 0 when every trial was made, 1 after a record of what went wrong."""
    asked = json.load(sys.stdin)
    given = asked["flags"] | {"store_dir": Path(asked["flags"]["store_dir"]) if asked["flags"]["store_dir"] else None}
    flags = ServingFlags(**given)
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # native code writes where it likes: what is left of stdout is stderr

    def tell(record: dict[str, Any]) -> None:
        output.write(json.dumps(record) + "\n")
        output.flush()

    try:
        asyncio.run(_try_out(load, asked["reference"], flags, asked["used_bytes"], tell))
    except Refused as refusal:
        tell({"trial": "refused", "code": refusal.code, "message": refusal.message})
        return 1
    except Exception as error:
        tell({"trial": "refused", "code": "engine_failed", "message": f"{type(error).__name__}: {error}"})
        return 1
    return 0


async def _try_out(load: Loader, reference: str, flags: ServingFlags, used: int, tell: Tell) -> None:
    tell({"begin": "load"})
    started = time.monotonic()
    member = load(reference, flags, lambda *_: None, used)
    try:
        state = member.status(reference)
        tell(
            {
                "trial": "load",
                "took_ms": int(1000 * (time.monotonic() - started)),
                "member": state.model_dump(mode="json", exclude_none=True),
            }
        )
        tell({"begin": "constraint"})
        if is_remote(reference):  # its rows, threads and speed are the other engine's own
            tell(await try_constraint(asks(member)))
            return
        async for record in trials(asks(member), state.window):
            tell(record)
            tell({"begin": "prefix" if record["trial"] == "constraint" else "speed"})
    finally:
        member.close()
    await _try_speeds(load, reference, flags, tell)


async def _try_speeds(load: Loader, reference: str, flags: ServingFlags, tell: Tell) -> None:
    """One load for each number of threads, without a store and with a small window."""
    end = time.monotonic() + SPEED_SECONDS
    for threads in thread_counts(flags.threads or usable_cores()):
        if time.monotonic() > end:
            tell({"trial": "speed skipped", "threads": threads})
            continue
        small = replace(flags, threads=threads, window=SPEED_WINDOW, context_budget=0, store_dir=None)
        member = load(reference, small, lambda *_: None, 0)
        try:
            tell(await try_speed(asks(member), threads))
        finally:
            member.close()


def thread_counts(cores: int) -> list[int]:
    """1, 2, 4, … and all of them. Pure."""
    powers = [1 << power for power in range(cores.bit_length())]
    return sorted({*(power for power in powers if power <= cores), cores})


def asks(member: EngineMember) -> Ask:
    """Generations of a bare engine, one at a time."""

    async def ask(segments: Sequence[Segment], constraint: Constraint | None, limit: int) -> Timed:
        parts = [Part(segment.role, segment.text) for segment in segments]
        loop = asyncio.get_running_loop()
        items: asyncio.Queue[Item] = asyncio.Queue()
        rendered = await asyncio.to_thread(member.render, parts)

        def deliver(item: Item) -> None:
            loop.call_soon_threadsafe(items.put_nowait, item)

        job = Job(
            ids=rendered.ids,
            max_new_tokens=limit,
            deliver=deliver,
            constraint=constraint,
            parts=parts,
            draft=False,
        )
        await asyncio.to_thread(member.check, job)
        await asyncio.to_thread(member.submit, job)
        while True:
            match await items.get():
                case Finished() as done:
                    timing = Timing(queued_ms=done.queued_ms, prefill_ms=done.prefill_ms, decode_ms=done.decode_ms)
                    return timed(done.text, done.finish, done.usage, timing)
                case Failed(code=code, message=message):
                    raise Refused(code, message)

    return ask


if __name__ == "__main__":
    from caldrix.commands.loader import load

    sys.exit(main(load))
