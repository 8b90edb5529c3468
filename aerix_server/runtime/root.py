"""The root agent of a request: built on a fresh context, or going on with the one the log tells of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aerix_server.pool.port import MemberState
from aerix_server.protocol.events import Event, JobEvent, MessageEvent, Route, ToolResult
from aerix_server.runtime import resume
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.bounds import TurnBudget
from aerix_server.runtime.compact import turn_tokens
from aerix_server.runtime.constraint import turn_constraint
from aerix_server.runtime.context import AgentContext, Draft, Numbers
from aerix_server.runtime.context_port import ModelContext
from aerix_server.runtime.plan import AgentPlan
from aerix_server.runtime.ports import Ended, RequestPorts, RequestSpec, RootState
from aerix_server.runtime.prompt import planner_tools, request_text
from aerix_server.runtime.spool import Spool
from aerix_server.tools.base import Tool, ToolContext, Views
from aerix_server.tools.jobs import Jobs

ROOT = "a1"
Send = Callable[[Event], None]


def build_root(
    spec: RequestSpec,
    ports: RequestPorts,
    history: RootState | None,
    member: MemberState,
    tools: Mapping[str, Tool[Any]],
    prompts: Mapping[str, str],
    send: Send,
) -> Agent:
    """The root agent, its context not made yet. `tools` are those it may call."""
    settings, spool = ports.settings, Spool(ports.spool_dir)
    numbers = Numbers()
    if history is not None:
        numbers = Numbers(history.segments_made, history.turns, history.calls)
    context = AgentContext(ports.pool, ROOT, send, spool, numbers)
    plan = AgentPlan(ROOT, send, history.plan if history else "", ports.gate)
    jobs = _jobs(spec, ports, history, send)
    return Agent(
        name=ROOT,
        member=member,
        context=context,
        settings=settings,
        prompts=prompts,
        send=send,
        spool=spool,
        tools=tools,
        constraint=turn_constraint(member, tools, spec.output_schema),
        tool_context=_tool_context(ports, context, plan, jobs, send),
        jobs=jobs,
        plan=plan,
        numbers=numbers,
        budget=TurnBudget(spec.max_turns or settings.delegation.max_turns),
        structured=spec.output_schema is not None,
    )


def callable_tools(
    registry: Mapping[str, Tool[Any]], route: Route, settings: Sequence[str]
) -> tuple[Mapping[str, Tool[Any]], list[str]]:
    """The tools the root may call, and their names where the route makes it a planner (else none)."""
    planner = planner_tools(route, list(registry), settings)
    return ({name: registry[name] for name in planner} if planner else registry), planner


async def start_root(
    agent: Agent, spec: RequestSpec, history: RootState | None, shared: list[Draft], planner: list[str]
) -> None:
    """Make the root's context: opening or history, and the prompt. Raises PoolFailed, and Ended without room."""
    prompt = Draft("user", "prompt", request_text(spec.prompt, agent.prompts, planner, spec.output_schema))
    if history is None:
        await agent.context.create(agent.member.member, (), [*shared, prompt])
        _refuse_too_long(agent)
        return
    open_calls = resume.unanswered(history)
    for call in open_calls:
        result = ToolResult(call=call.id, tool=call.tool, text=resume.INTERRUPTED, error=True, ms=0)
        agent.send(MessageEvent(agent=agent.name, turn=agent.numbers.turns, role="tool", result=result))
    closing = [
        Draft("user", f"{call.tool} {call.id}", f"[{call.tool} {call.id}]\n{resume.INTERRUPTED}") for call in open_calls
    ]
    await agent.context.create(agent.member.member, history.segments, [*closing, prompt])


def _refuse_too_long(agent: Agent) -> None:
    context = agent.context
    turn = turn_tokens(agent.settings.context.max_new_tokens, context.window)
    if context.tokens + turn < context.window:
        return
    parts = ", ".join(f"{segment.label} {segment.tokens}" for segment in context.segments)
    raise Ended(
        "failed",
        f"the request does not fit the model: it has {context.tokens} tokens ({parts}), a turn needs {turn} more, "
        f"and the window of {agent.member.model} is {context.window}. "
        "Shorten the prompt or the instruction files, or choose a model with a larger window.",
    )


def _jobs(spec: RequestSpec, ports: RequestPorts, history: RootState | None, send: Send) -> Jobs:
    def emit(event: JobEvent) -> None:
        # A job may end between two steps of the loop, where nobody can take the end of a lost log; the next step does.
        with contextlib.suppress(Ended):
            send(event)

    return Jobs(ROOT, ports.cwd, ports.spool_dir, emit, history.jobs if history else 0, spec.id)


def _tool_context(ports: RequestPorts, context: AgentContext, plan: AgentPlan, jobs: Jobs, send: Send) -> ToolContext:
    return ToolContext(
        cwd=ports.cwd,
        settings=ports.settings,
        cancelled=ports.cancelled,
        views=Views(),
        spool_dir=ports.spool_dir,
        plan=plan,
        context=ModelContext(ROOT, context, send),
        jobs=jobs,
        cache={},
        overlay=ports.overlay,
    )
