"""The loop of one agent: make room, ask, run the calls, append, until a final or a bound."""

from __future__ import annotations

import json
from typing import Any

from aerix_server.pool.port import PoolFailed
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.ask import ask
from aerix_server.runtime.calls import run_calls
from aerix_server.runtime.job_results import append_finished, wait_for_one
from aerix_server.runtime.ports import Ended
from aerix_server.runtime.room import make_room


async def run_agent(agent: Agent) -> Ended:
    """Run an agent to its end; the end is a value, never raised."""
    try:
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
        return pool_end(error, f"in turn {agent.numbers.turns}")


async def _finish(agent: Agent, final: Any) -> None:
    """End with the final, unless a background job is still due and a turn is left to hear of it."""
    if not agent.budget.exhausted and await wait_for_one(agent):
        return
    if agent.structured:
        raise Ended("final", text=json.dumps(final, ensure_ascii=False), output=final)
    raise Ended("final", text=final)


def pool_end(error: PoolFailed, when: str) -> Ended:
    """A pool's refusal or loss as the request's end: what happened, when, and what to do."""
    if error.code in ("unavailable", "shutting_down"):
        return Ended("failed", f"the pool went away {when}: {error.message} Ask again: the next request starts a pool.")
    return Ended("failed", f"the pool could not serve the request {when}: {error.message}")
