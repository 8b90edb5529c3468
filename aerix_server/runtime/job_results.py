"""Background commands: what has ended goes into the context, and a final waits for what still runs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from aerix_server.config.bounds import JOB_POLL_S, JOB_WAIT_SLACK_S
from aerix_server.protocol.events import Notice
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.lease import RELEASE_S
from aerix_server.runtime.results import deliver_job
from aerix_server.tools.base import Output
from aerix_server.tools.jobs import KILL_WAIT_S


async def append_finished(agent: Agent) -> None:
    """Append the output of each job that has ended since."""
    await _append(agent, agent.jobs.take_finished())


async def wait_for_one(agent: Agent) -> bool:
    """Wait until a job ends and append its output; False when none is due, or none ended within the bound."""
    latest = agent.jobs.longest_deadline()
    deadline = (latest or time.monotonic()) + JOB_WAIT_SLACK_S
    ended = agent.jobs.take_finished()
    while not ended and agent.jobs.running() and time.monotonic() < deadline:
        ended = await agent.jobs.wait_any(JOB_POLL_S)
    await _append(agent, ended)
    return bool(ended)


async def end_all(agent: Agent, *, at_once: bool = False) -> None:
    """End what still runs; what could not be ended is told to the user. `at_once`: others wait for it to be gone."""
    unended, ending = await agent.jobs.kill_all(RELEASE_S if at_once else KILL_WAIT_S)
    for one in ending:
        agent.leave(one)
    if unended:
        text = f"these processes could not be ended: {', '.join(unended)}"
        agent.send(Notice(agent=agent.name, level="warning", text=text))


async def _append(agent: Agent, ended: Sequence[tuple[str, str]]) -> None:
    for job, text in ended:
        head, _, output = text.partition("\n")
        await deliver_job(agent, job, head, Output(output, whole=agent.jobs.whole(job)))
