"""A cancel in each phase of a request: prompt, named, and nothing left running or open."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aerix_server.pool.port import ContextState, NewSegment
from aerix_server.protocol.events import AgentEnd, AgentSpawn, JobEvent, MessageEvent, ProgressEvent, RouteEvent
from aerix_server.runtime.ports import PlanDecision, RequestResult
from tests.runtime.loop_kit import Kit, call, final, turn
from tests.runtime.scripted_pool import ScriptedPool

Make = Callable[..., Kit]
PROMPT_S = 0.4
"""200 ms are promised; the rest is for two busy cores."""


async def cancel_when(run: Kit, seen: Callable[[Any], bool], **more: Any) -> tuple[RequestResult, float]:
    """Cancel once an event is seen; the result and the seconds it took to come."""
    reached = asyncio.Event()
    run.on_event = lambda event: reached.set() if seen(event) else None
    request = asyncio.create_task(run.run(**more))
    async with asyncio.timeout(20):
        await reached.wait()
    started = time.monotonic()
    run.cancelled.set()
    async with asyncio.timeout(20):
        result = await request
    return result, time.monotonic() - started


def ended_well(run: Kit, result: RequestResult, seconds: float) -> None:
    assert result.outcome == "cancelled" and seconds < PROMPT_S
    assert [event.outcome for event in run.of(AgentEnd)] == ["cancelled"] * len(run.of(AgentSpawn))
    assert run.pool.contexts == {}


async def test_while_routing(kit: Make) -> None:
    class Slow(ScriptedPool):
        async def create(self, member: str, segments: Any) -> ContextState:
            await asyncio.Event().wait()
            return await super().create(member, segments)

    run = kit()
    run.pool = Slow([])
    task = asyncio.create_task(run.run(route=None))
    await asyncio.sleep(0)
    run.cancelled.set()
    result = await asyncio.wait_for(task, PROMPT_S)
    assert result.outcome == "cancelled" and run.of(RouteEvent) == [] and run.of(AgentEnd) == []


async def test_while_a_turn_is_generated(kit: Make) -> None:
    run = kit(asyncio.Event())
    result, seconds = await cancel_when(
        run, lambda event: isinstance(event, ProgressEvent) and event.phase == "prefill"
    )
    ended_well(run, result, seconds)
    assert run.pool.broken_off == 1


async def test_while_a_command_runs(kit: Make) -> None:
    run = kit(turn(call("bash", command="echo before; sleep 60"), call("write", path="never", content="x")))
    result, seconds = await cancel_when(
        run, lambda event: isinstance(event, MessageEvent) and event.role == "assistant"
    )
    ended_well(run, result, seconds)
    assert not (run.cwd / "never").exists()
    assert all("[cancelled]" in text for text in run.results())


async def test_while_a_final_waits_for_a_job(kit: Make) -> None:
    run = kit(turn(call("bash", command="sleep 60", background=True)), final())
    result, seconds = await cancel_when(
        run, lambda event: isinstance(event, MessageEvent) and event.role == "assistant" and event.final is not None
    )
    ended_well(run, result, seconds)
    assert [event.event for event in run.of(JobEvent)] == ["start", "killed"]


async def test_while_a_plan_waits(kit: Make) -> None:
    run = kit(turn(call("plan", op="write", text="p")))
    asked = asyncio.Event()

    async def never(_plan: Any) -> PlanDecision:
        asked.set()
        return await asyncio.Future()

    run.gate = never
    request = asyncio.create_task(run.run())
    await asyncio.wait_for(asked.wait(), 20)
    started = time.monotonic()
    run.cancelled.set()
    ended_well(run, await asyncio.wait_for(request, 20), time.monotonic() - started)


async def test_before_it_begins(kit: Make) -> None:
    run = kit()
    run.cancelled.set()
    result = await run.run()
    assert result.outcome == "cancelled" and run.pool.asked == []


async def test_the_servers_own_cancel_ends_the_agent_too(kit: Make) -> None:
    run = kit(asyncio.Event())
    reached = asyncio.Event()
    run.on_event = lambda event: reached.set() if isinstance(event, ProgressEvent) else None
    request = asyncio.create_task(run.run())
    await asyncio.wait_for(reached.wait(), 20)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert [event.outcome for event in run.of(AgentEnd)] == ["cancelled"] and run.pool.broken_off == 1


async def test_an_open_call_is_closed_by_the_next_request(kit: Make) -> None:
    run = kit(turn(call("bash", command="echo $$ > pid; exec sleep 60"), call("glob", pattern="*")))
    result, _ = await cancel_when(run, lambda event: isinstance(event, MessageEvent) and event.role == "assistant")
    assert result.outcome == "cancelled"
    run.cancelled, run.on_event = asyncio.Event(), lambda _event: None
    run.pool.script = [final("went on")]
    second = await run.run("Go on.", history=run.root_state())
    assert (second.outcome, second.text) == ("final", "went on")
    prompt: list[NewSegment] = run.pool.prompts[-1]
    assert [item.text.split("\n")[0] for item in prompt[3:5]] == ["[bash c1]", "[glob c2]"]
    assert prompt[4].text == "[glob c2]\nerror: interrupted" and prompt[5].text == "Go on."
    assert run.messages("tool")[-1].result and run.messages("tool")[-1].result.text == "error: interrupted"


async def test_a_command_that_ignores_term_is_left_to_be_killed(kit: Make) -> None:
    """The request ends at once; who ends the server waits for what was left."""
    run = kit(turn(call("bash", command="trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done")))
    request = asyncio.create_task(run.run())
    pid = run.cwd / "pid"
    async with asyncio.timeout(20):
        while not (pid.exists() and pid.read_text().strip()):
            await asyncio.sleep(0.01)
        run.cancelled.set()
        started = time.monotonic()
        ended_well(run, await request, time.monotonic() - started)
        assert run.left
        while not all(left.gone() for left in run.left):
            await asyncio.sleep(0.01)
    assert not Path(f"/proc/{int(pid.read_text())}").exists() or os.name != "posix"
