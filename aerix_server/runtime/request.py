"""One request, end to end: route it, run the root agent, end by name. Cancelling turns into asyncio's own cancel."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from aerix_server.pool.port import MemberState, PoolFailed
from aerix_server.profile.prompts import embedded_prompts
from aerix_server.protocol.events import Route
from aerix_server.runtime.agent import pool_end, run_agent
from aerix_server.runtime.agent_state import ROOT_KIND, Agent
from aerix_server.runtime.points import Point
from aerix_server.runtime.ports import Ended, RequestPorts, RequestResult, RequestSpec, RootState
from aerix_server.runtime.root import ROOT, build_root, callable_tools, start_root
from aerix_server.runtime.route import choose, forced
from aerix_server.runtime.run import Run
from aerix_server.tools.registry import registry

_log = logging.getLogger(__name__)

_CANCELLED = Ended("cancelled", "the request was cancelled")


async def run_request(spec: RequestSpec, ports: RequestPorts, history: RootState | None) -> RequestResult:
    """Serve one request to a named outcome. Raises nothing but asyncio's cancellation, which ends it first."""
    served = _Served(spec, ports, history)
    if ports.cancelled.is_set():
        return served.result(_CANCELLED)
    try:
        ended = await _until_cancelled(served.serve(), ports.cancelled)
    except Exception as error:
        _log.exception("the request %s failed", spec.id)
        kind = type(error).__name__
        ended = Ended("failed", f"a fault of Aerix itself ({kind}) ended the request; the server's log tells more")
    return served.result(ended)


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


class _Served:
    """A request under way: what its result is told of."""

    def __init__(self, spec: RequestSpec, ports: RequestPorts, history: RootState | None) -> None:
        told = {name: definition.description for name, definition in ports.definitions.items()}
        tools = registry(told, tuple(dict.fromkeys((ports.main, ports.decision))))
        self._run = Run(spec, ports, embedded_prompts(), tools)
        self._history = history
        self._root: Agent | None = None

    async def serve(self) -> Ended:
        try:
            main, route = await self._route()
            tools, planner = callable_tools(self._run, route)
            root = self._root = build_root(self._run, main, tools, self._history)
            root.changes_due = self._changes_due(route)
            return await run_agent(root, lambda: start_root(self._run, root, self._history, planner))
        except Ended as ended:
            return ended
        except PoolFailed as error:
            return pool_end(error, "before the first turn")
        finally:
            await asyncio.gather(*(agent.context.release() for agent in self._run.agents))

    async def _route(self) -> tuple[MemberState, Route]:
        run, ports, routing = self._run, self._run.ports, self._run.ports.settings.routing
        main = await ports.pool.member(ports.main)
        if run.spec.route is not None or not routing.enabled:
            return main, forced(run.spec.route or "edit", ports.decision, run.send)
        decision = await ports.pool.member(ports.decision)
        route, usage = await choose(ports.pool, decision, routing, run.prompts["routing"], run.spec.prompt, run.send)
        run.routing += usage
        answer = await ports.fire(Point("RouteDecision", ROOT, ROOT_KIND, {"choice": route}))
        if answer.end is not None:
            raise Ended("refused", f"RouteDecision ended the request: {answer.end}")
        return main, route

    def _changes_due(self, route: Route) -> bool:
        """Without routing every request is an edit, so nothing is known of it."""
        settings = self._run.ports.settings
        known = settings.routing.enabled or self._run.spec.route is not None
        return route == "edit" and known and settings.assist.ask_for_changes

    def result(self, ended: Ended) -> RequestResult:
        root = self._root
        return RequestResult(
            outcome=ended.outcome,
            reason=ended.reason,
            text=ended.text,
            output=ended.output,
            usage=self._run.usage,
            turns=root.budget.used if root else 0,
            files_touched=tuple(root.files) if root else (),
        )
