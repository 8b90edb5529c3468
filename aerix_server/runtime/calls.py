"""The calls of a turn, run in order, those that give work to others last and together; results in call order."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import functools
import logging
import time
from collections import deque
from typing import Any

from aerix_server.pool.port import PoolFailed
from aerix_server.protocol.events import Call
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.bounds import repeat_note
from aerix_server.runtime.lease import RELEASE_S
from aerix_server.runtime.order import touched_twice
from aerix_server.runtime.ports import Ended
from aerix_server.runtime.results import Result, deliver_call
from aerix_server.runtime.together import together
from aerix_server.runtime.turn import Turn, canonical, dropped_note
from aerix_server.tools.base import Output, Refusal, Tool, ToolContext, ToolError
from aerix_server.tools.registry import parse_input

_log = logging.getLogger(__name__)

_CANCEL_GRACE_S = 0.15
"""What a cancelled tool has to end by itself; bash looks every 50 to 100 ms."""
_LET_GO_S = 0.5


class Interrupted(Exception):
    """The request was cancelled while a tool ran, and `output` is what the tool still gave."""

    def __init__(self, output: Output) -> None:
        super().__init__("interrupted")
        self.output = output


async def run_calls(agent: Agent, turn: Turn) -> None:
    """Run the calls and append their results. Raises Ended: an aborted plan, a call repeated too often."""
    agent.doubts = turn.doubts
    waiting, results, made = deque(turn.calls), dict[str, Result](), set[str]()

    async def deliver_ready() -> None:
        while waiting and waiting[0].id in results:
            call = waiting.popleft()
            await _deliver(agent, call, results[call.id], made)

    late = [call for call in turn.calls if _at_the_end(agent, call)]
    for call in turn.calls:
        if call not in late:
            results[call.id] = await _run(agent, call)
            await deliver_ready()
    results |= await together(
        {call.id: functools.partial(_run, agent, call) for call in late}, agent.settings.delegation.parallel
    )
    await deliver_ready()
    if note := touched_twice({call.id: results[call.id].output.touched for call in late}):
        await agent.tell(note)
    if agent.plan.aborted:
        raise Ended("cancelled", "the user aborted the plan")
    if turn.dropped:
        await agent.tell(dropped_note(turn.dropped))


async def _deliver(agent: Agent, call: Call, result: Result, made: set[str]) -> None:
    """Append a result, and say so when its call goes round in circles. `made`: the calls of this turn until now."""
    key = canonical(call)
    # Asking how a job gets on is no loop, and within one turn the model has not yet seen what it asks for again.
    counted = key not in made and not agent.jobs.running()
    made.add(key)
    seen = None
    if _only_looks(agent, call) and not result.failed:
        seen = agent.looks.again(call, key, result.output.text, agent.context.segments)
        result = result if seen is None else Result(Output(seen), False, result.ms)
    await deliver_call(agent, call, result)
    times = agent.repeats.add(key) if counted else 0
    if times == 1:
        agent.withheld.clear()
    if counted and (times > 1 or seen is not None) and agent.settings.assist.change_course:
        agent.withheld.add(call.tool)
    note = repeat_note(call.tool, times)
    if note is not None:
        await agent.tell(note)


def _only_looks(agent: Agent, call: Call) -> bool:
    tool = agent.tools.get(call.tool)
    return tool is not None and tool.only_looks


def _at_the_end(agent: Agent, call: Call) -> bool:
    tool = agent.tools.get(call.tool)
    return tool is not None and tool.at_the_end


async def _run(agent: Agent, call: Call) -> Result:
    """The call's result, whatever happened. Raises PoolFailed, Ended and CancelledError only."""
    started, made = time.monotonic(), call
    try:
        made = await _asked(agent, call)
        output, failed = await _attempt(agent, made), False
    except (ToolError, Refusal) as error:
        output, failed = Output(_told(agent, call, error)), True
    except Interrupted as interrupted:
        await _save(agent, call, Result(interrupted.output, False, _ms(started)))
        raise asyncio.CancelledError from None
    except (PoolFailed, Ended):
        raise
    except Exception as error:
        _log.exception("the tool %s failed on call %s", call.tool, call.id)
        output, failed = Output(f"error: internal error in {call.tool}: {type(error).__name__}"), True
    agent.files.update(dict.fromkeys(output.touched))
    agent.checks.extend(output.checks)
    return await _looked_over(agent, made, Result(output, failed, _ms(started)))


def _told(agent: Agent, call: Call, error: ToolError | Refusal) -> str:
    lines = [f"{'refused' if isinstance(error, Refusal) else 'error'}: {error}"]
    lines += [
        f"[unsure] the {doubt.field} {doubt.value!r} was a guess, with a probability of {doubt.probability:.2f}"
        for doubt in agent.doubts
        if doubt.call == call.id
    ]
    if error.next_step and agent.settings.assist.next_steps:
        lines.append(f"[next] {error.next_step}")
    return "\n".join(lines)


async def _asked(agent: Agent, call: Call) -> Call:
    """The call as it is to be made, with the input that PreToolUse gave in place of its own."""
    if agent.plan.aborted:
        raise Refusal("the user aborted the plan")
    tool = agent.tools.get(call.tool)
    if tool is None:
        near = difflib.get_close_matches(call.tool, agent.tools, n=1)
        meant = f"did you mean {near[0]}? The" if near else "the"
        raise ToolError(f"there is no tool {call.tool!r} here; {meant} tools are {', '.join(agent.tools)}")
    parse_input(tool, call.input)
    answer = await agent.fire("PreToolUse", tool=call.tool, input=call.input, call=call.id)
    if answer.block is not None:
        raise Refusal(answer.block)
    return call if answer.input is None else call.model_copy(update={"input": answer.input})


async def _attempt(agent: Agent, call: Call) -> Output:
    tool = agent.tools[call.tool]
    parsed = parse_input(tool, call.input)
    context = agent.tool_context.of_call(call.id)
    if tool.at_the_end:
        # Its agents end their own tools in time, and must not be left behind.
        return await tool.run(parsed, context)
    return await _to_its_end(tool, parsed, context)


async def _looked_over(agent: Agent, call: Call, result: Result) -> Result:
    """The result with what was said of it at PostToolUse."""
    answer = await agent.fire(
        "PostToolUse",
        tool=call.tool,
        input=call.input,
        call=call.id,
        text=result.output.text,
        failed=result.failed,
    )
    notes = [note for note in (answer.block, answer.context) if note]
    return result.with_notes(notes) if notes else result


async def _to_its_end(tool: Tool[Any], parsed: Any, ctx: ToolContext) -> Output:
    """Run a tool. A cancelled one may end by itself first, so that nothing it started is left running."""
    task = asyncio.create_task(tool.run(parsed, ctx))
    try:
        async with asyncio.timeout(tool.limit_s) as limit:
            return await asyncio.shield(task)
    except TimeoutError:
        if not limit.expired():
            raise
        task.cancel()
        raise ToolError(
            f"{tool.name} did not end within {tool.limit_s:g} s and was left alone; a disk or a network may not answer"
        ) from None
    except asyncio.CancelledError:
        if ctx.cancelled.is_set():
            await asyncio.wait({task}, timeout=_CANCEL_GRACE_S)
        task.cancel()
        await asyncio.wait({task}, timeout=_LET_GO_S)
        if task.done() and not task.cancelled() and task.exception() is None:
            raise Interrupted(task.result()) from None
        raise


async def _save(agent: Agent, call: Call, result: Result) -> None:
    """Bring a cancelled call's result into log and context if that goes at once; a resume closes it otherwise."""
    agent.files.update(dict.fromkeys(result.output.touched))
    agent.checks.extend(result.output.checks)
    with contextlib.suppress(TimeoutError, PoolFailed, Ended):
        async with asyncio.timeout(RELEASE_S):
            await deliver_call(agent, call, result)


def _ms(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
