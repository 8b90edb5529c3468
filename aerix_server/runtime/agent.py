"""The life of one agent: its context made, its loop until a final or a bound, its jobs ended, its end logged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aerix_server.config.bounds import STOP_CONTINUES
from aerix_server.pool.port import PoolFailed
from aerix_server.protocol.events import AgentEnd
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.ask import ask
from aerix_server.runtime.calls import run_calls
from aerix_server.runtime.job_results import append_finished, end_all, wait_for_one
from aerix_server.runtime.ports import Ended
from aerix_server.runtime.room import make_room

_log = logging.getLogger(__name__)

NO_CHANGE: Final = (
    "[no change] You were asked to change something, and no file was changed by edit or write. If that is still to be "
    "done, do it now. If nothing has to be changed, or a command changed it, give your final again."
)


async def run_agent(agent: Agent, start: Callable[[], Awaitable[None]]) -> Ended:
    """Run an agent to its end, which is a value and logged. `start` makes its context.

    Raises nothing but asyncio's cancellation, after which the agent has ended all the same.
    """
    try:
        ended = await _work(agent, start)
        await _end_jobs(agent)
    except asyncio.CancelledError:
        await _end_jobs(agent, at_once=True)
        _log_end(agent, Ended("cancelled", "the request was cancelled"))
        # Its context goes with those of all others at the request's end: one after the other takes too long.
        raise
    ended = _log_end(agent, ended)
    await agent.context.release()
    return ended


async def _work(agent: Agent, start: Callable[[], Awaitable[None]]) -> Ended:
    try:
        await start()
        while True:
            agent.budget.take()
            await append_finished(agent)
            room = await make_room(agent)
            turn = await ask(agent, room)
            if turn.calls:
                await run_calls(agent, turn)
            else:
                await _finish(agent, turn.final)
    except Ended as ended:
        return ended
    except PoolFailed as error:
        turns = agent.numbers.turns
        return pool_end(error, f"in turn {turns}" if turns else "before the first turn")
    except Exception as error:
        _log.exception("the agent %s failed", agent.name)
        kind = type(error).__name__
        return Ended("failed", f"a fault of Aerix itself ({kind}) ended the agent; the server's log tells more")


async def _finish(agent: Agent, final: Any) -> None:
    """End with the final, unless a background job is still due or somebody objects, and a turn is left for it."""
    if not agent.budget.exhausted and await wait_for_one(agent):
        return
    if await _asked_for_changes(agent):
        return
    answer = await agent.fire("Stop" if agent.is_root else "SubagentStop", final=final, active=agent.continues > 0)
    if answer.block is not None and agent.continues < STOP_CONTINUES and not agent.budget.exhausted:
        agent.continues += 1
        agent.withheld.clear()  # What is asked for now may need any tool.
        await agent.tell(f"[not finished] {answer.block}")
        return
    if agent.structured:
        raise Ended("final", text=json.dumps(final, ensure_ascii=False), output=final)
    raise Ended("final", text=final)


async def _asked_for_changes(agent: Agent) -> bool:
    """Ask once whether an edit without any change is done: small models announce what they will do, and stop."""
    if not agent.changes_due or agent.files or agent.checks or agent.budget.exhausted:
        return False
    agent.changes_due = False
    await agent.tell(NO_CHANGE)
    return True


async def _end_jobs(agent: Agent, *, at_once: bool = False) -> None:
    # A log that cannot tell of them cannot tell of the agent's end either, which is what counts.
    with contextlib.suppress(Ended):
        await end_all(agent, at_once=at_once)


def _log_end(agent: Agent, ended: Ended) -> Ended:
    """How the agent ended: as given, or because the log could not be written."""
    try:
        agent.send(
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
    return ended


def pool_end(error: PoolFailed, when: str) -> Ended:
    """A pool's refusal or loss as the request's end: what happened, when, and what to do."""
    if error.code in ("unavailable", "shutting_down"):
        return Ended("failed", f"the pool went away {when}: {error.message} Ask again: the next request starts a pool.")
    return Ended("failed", f"the pool could not serve the request {when}: {error.message}")
