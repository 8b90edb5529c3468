"""The root agent of a request: on a fresh context, or going on with the one the log tells of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aerix_server.pool.port import MemberState
from aerix_server.protocol.events import AgentSpawn, MessageEvent, Route, ToolResult
from aerix_server.runtime import resume
from aerix_server.runtime.agent_state import ROOT_KIND, Agent
from aerix_server.runtime.build import Kind, build_agent
from aerix_server.runtime.context import Draft, Numbers
from aerix_server.runtime.opening import opening_for, refuse_too_long
from aerix_server.runtime.pieces import delegating
from aerix_server.runtime.ports import Ended, RootState
from aerix_server.runtime.prompt import may_delegate, planner_tools, request_text
from aerix_server.runtime.run import Run
from aerix_server.tools.base import Tool

ROOT: Final = "a1"


def build_root(run: Run, member: MemberState, tools: Mapping[str, Tool[Any]], history: RootState | None) -> Agent:
    """The root agent, its context not made yet. `tools` are those it may call. Raises Ended."""
    spec, settings = run.spec, run.ports.settings
    if spec.output_schema is not None and "Json" not in member.constraints:
        raise Ended(
            "failed", f"{member.model} knows no Json constraint, so its final cannot be held to an output schema"
        )
    agent = build_agent(
        run,
        Kind(
            name=ROOT,
            kind=ROOT_KIND,
            member=member,
            tools=tools,
            depth=0,
            max_turns=spec.max_turns or settings.delegation.max_turns,
            final=spec.output_schema,
            numbers=Numbers(history.segments_made, history.turns, history.calls) if history else Numbers(),
            plan=history.plan if history else "",
            gate=run.ports.gate,
            jobs=history.jobs if history else 0,
        ),
    )
    return delegating(run, agent)


def callable_tools(run: Run, route: Route) -> tuple[Mapping[str, Tool[Any]], list[str]]:
    """The tools the root may call, and their names where the route makes it a planner (else none)."""
    settings = run.ports.settings.delegation
    tools = may_delegate(run.tools, 0, settings.depth)
    planner = planner_tools(route, list(tools), settings.planner_tools)
    return ({name: tools[name] for name in planner} if planner else tools), planner


async def start_root(run: Run, agent: Agent, history: RootState | None, planner: list[str]) -> None:
    """Make the root's context: opening or history, and the prompt. Raises PoolFailed, and Ended without room."""
    run.send(AgentSpawn(agent=agent.name, parent=None, kind="root", member=agent.member.member, depth=0))
    await agent.fire("AgentSpawn", brief=run.spec.prompt)
    prompt = Draft("user", "prompt", request_text(run.spec.prompt, run.prompts, planner, run.spec.output_schema))
    if history is None:
        await agent.context.create(agent.member.member, (), [*await opening_for(run, agent.member), prompt])
        refuse_too_long(agent)
    else:
        await agent.context.create(agent.member.member, history.segments, [*_closing(agent, history), prompt])
    agent.show_usage()


def _closing(agent: Agent, history: RootState) -> list[Draft]:
    """Results for the calls that an earlier request left without one."""
    closing = []
    for call in resume.unanswered(history):
        result = ToolResult(call=call.id, tool=call.tool, text=resume.INTERRUPTED, error=True, ms=0)
        agent.send(MessageEvent(agent=agent.name, turn=agent.numbers.turns, role="tool", result=result))
        name = f"{call.tool} {call.id}"
        closing.append(Draft("user", name, f"[{name}]\n{resume.INTERRUPTED}"))
    return closing
