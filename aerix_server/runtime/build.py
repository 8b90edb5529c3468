"""One agent of a request, made ready: its context is not in the pool yet."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aerix_server.pool.port import MemberState
from aerix_server.protocol.events import JobEvent
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.bounds import TurnBudget
from aerix_server.runtime.constraint import turn_constraint
from aerix_server.runtime.context import AgentContext, Numbers
from aerix_server.runtime.context_port import ModelContext
from aerix_server.runtime.plan import AgentPlan, Gate
from aerix_server.runtime.ports import Ended
from aerix_server.runtime.run import Run
from aerix_server.runtime.spool import Spool
from aerix_server.tools.base import Tool, ToolContext, Views
from aerix_server.tools.jobs import Jobs


@dataclass(frozen=True)
class Kind:
    """What sets one agent apart from others of its request.

    `kind` is root, implementer, verifier or a definition's name; `final` the JSON Schema of its final, None for a text.
    `numbers`, `plan` and `jobs` (the highest number used) go on from an earlier request.
    """

    name: str
    kind: str
    member: MemberState
    tools: Mapping[str, Tool[Any]]
    depth: int
    max_turns: int
    final: dict[str, Any] | None = None
    numbers: Numbers = field(default_factory=Numbers)
    plan: str = ""
    gate: Gate | None = None
    jobs: int = 0


def build_agent(run: Run, kind: Kind) -> Agent:
    """Raises Ended where its turns cannot be constrained as they must."""
    ports, spool = run.ports, Spool(run.ports.spool_dir)
    context = AgentContext(ports.pool, kind.name, run.send, spool, kind.numbers)
    plan = AgentPlan(kind.name, run.send, kind.plan, kind.gate)
    jobs = _jobs(run, kind)
    agent = Agent(
        name=kind.name,
        kind=kind.kind,
        depth=kind.depth,
        member=kind.member,
        context=context,
        settings=ports.settings,
        prompts=run.prompts,
        send=run.send,
        spool=spool,
        tools=kind.tools,
        constraint=turn_constraint(kind.member, kind.tools, kind.final),
        tool_context=ToolContext(
            cwd=ports.cwd,
            settings=ports.settings,
            cancelled=ports.cancelled,
            views=Views(),
            spool_dir=ports.spool_dir,
            plan=plan,
            context=ModelContext(kind.name, context, run.send),
            jobs=jobs,
            cache=run.cache,
            overlay=ports.overlay,
            before_write=ports.before_write,
            agent=kind.name,
            shared=run.shared,
        ),
        jobs=jobs,
        plan=plan,
        numbers=kind.numbers,
        budget=TurnBudget(kind.max_turns),
        fire_port=ports.fire,
        leave=ports.leave,
        final_schema=kind.final,
    )
    run.agents.append(agent)
    return agent


def _jobs(run: Run, kind: Kind) -> Jobs:
    def emit(event: JobEvent) -> None:
        # A job may end between two steps of the loop, where nobody can take the end of a lost log; the next step does.
        with contextlib.suppress(Ended):
            run.send(event)

    return Jobs(kind.name, run.ports.cwd, run.ports.spool_dir, emit, kind.jobs, run.spec.id)
