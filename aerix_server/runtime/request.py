"""One request, end to end: route it, run the root agent, end by name. Cancelling turns into asyncio's own cancel."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from aerix_server.pool.port import MemberState, PoolFailed
from aerix_server.profile.prompts import embedded_prompts
from aerix_server.protocol.events import AgentEnd, AgentSpawn, Event, Route, Usage
from aerix_server.runtime.agent import pool_end, run_agent
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.job_results import end_all
from aerix_server.runtime.ports import (
    Ended,
    PlanDecision,
    ProposedPlan,
    RequestPorts,
    RequestResult,
    RequestSpec,
    RootState,
    SegmentRecord,
)
from aerix_server.runtime.prompt import opening
from aerix_server.runtime.root import ROOT, build_root, callable_tools, start_root
from aerix_server.runtime.route import choose, forced
from aerix_server.tools.registry import registry

__all__ = [
    "PlanDecision",
    "ProposedPlan",
    "RequestPorts",
    "RequestResult",
    "RequestSpec",
    "RootState",
    "SegmentRecord",
    "run_request",
]


log = logging.getLogger(__name__)

_CANCELLED = Ended("cancelled", "the request was cancelled")


@dataclass
class _Run:
    """A request under way: what its end is told of."""

    spec: RequestSpec
    ports: RequestPorts
    history: RootState | None
    usage: Usage = field(default_factory=Usage)
    agent: Agent | None = None

    def send(self, event: Event) -> None:
        """Emit with the request's id. Raises Ended when the log cannot be written."""
        try:
            self.ports.emit(event.model_copy(update={"request": self.spec.id}))
        except OSError as error:
            raise Ended("failed", f"the session log could not be written: {error}") from error


async def run_request(spec: RequestSpec, ports: RequestPorts, history: RootState | None) -> RequestResult:
    """Serve one request to a named outcome. Raises nothing but asyncio's cancellation, which ends it first."""
    run = _Run(spec, ports, history)
    if ports.cancelled.is_set():
        return await _close(run, _CANCELLED)
    try:
        ended = await _until_cancelled(_serve(run), ports.cancelled)
    except asyncio.CancelledError:
        await _close(run, Ended("cancelled", "the server stopped the request"))
        raise
    except Exception as error:
        log.exception("the request %s failed", spec.id)
        kind = type(error).__name__
        ended = Ended("failed", f"a fault of Aerix itself ({kind}) ended the request; the server's log tells more")
    return await _close(run, ended)


async def _until_cancelled(work: Coroutine[Any, Any, Ended], cancelled: asyncio.Event) -> Ended:
    """The work's end, or `cancelled` once the event is set and the work has let go."""
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(cancelled.wait())
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watcher.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    return _CANCELLED if task.cancelled() else task.result()


async def _serve(run: _Run) -> Ended:
    try:
        main, route = await _route(run)
        return await _run_root(run, main, route)
    except Ended as ended:
        return ended
    except PoolFailed as error:
        return pool_end(error, "before the first turn")


async def _route(run: _Run) -> tuple[MemberState, Route]:
    ports, routing = run.ports, run.ports.settings.routing
    main = await ports.pool.member(ports.main)
    if run.spec.route is not None or not routing.enabled:
        return main, forced(run.spec.route or "edit", ports.decision, run.send)
    decision = await ports.pool.member(ports.decision)
    route, usage = await choose(ports.pool, decision, routing, embedded_prompts()["routing"], run.spec.prompt, run.send)
    run.usage += usage
    return main, route


async def _run_root(run: _Run, member: MemberState, route: Route) -> Ended:
    ports, prompts, known = run.ports, embedded_prompts(), registry()
    tools, planner = callable_tools(known, route, ports.settings.delegation.planner_tools)
    agent = build_root(run.spec, ports, run.history, member, tools, prompts, run.send)
    run.send(AgentSpawn(agent=ROOT, parent=None, kind="root", member=member.member, depth=0))
    run.agent = agent
    shared = opening(prompts, list(known.values()), ports.cwd, member.window, ports.instructions)
    await start_root(agent, run.spec, run.history, shared, planner)
    agent.show_usage()
    return await run_agent(agent)


async def _close(run: _Run, ended: Ended) -> RequestResult:
    """End the jobs, log the agent's end, give the context back."""
    agent = run.agent
    if agent is not None:
        ended = await _close_agent(agent, ended, run.send)
        run.usage += agent.usage
    return RequestResult(
        outcome=ended.outcome,
        reason=ended.reason,
        text=ended.text,
        output=ended.output,
        usage=run.usage,
        turns=agent.budget.used if agent else 0,
        files_touched=tuple(agent.files) if agent else (),
    )


async def _close_agent(agent: Agent, ended: Ended, send: Callable[[Event], None]) -> Ended:
    try:
        await end_all(agent)
        send(
            AgentEnd(
                agent=agent.name,
                outcome=ended.outcome,
                reason=ended.reason,
                turns=agent.budget.used,
                usage=agent.usage,
                files_touched=list(agent.files),
                checks_run=agent.checks,
            )
        )
    except Ended as log_lost:
        return log_lost
    finally:
        await agent.context.release()
    return ended
