"""What a request is and works with: its record, what requests of a session share, the runtime's ports and history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aerix_server.config.settings import Settings
from aerix_server.pool.start import BoundPool
from aerix_server.protocol.events import AgentEnd, Event, Notice, ProgressEvent, SessionStart, Snapshot
from aerix_server.protocol.messages import Outcome
from aerix_server.protocol.outcomes import AerixError
from aerix_server.runtime.ports import PlanDecision, ProposedPlan, RequestPorts, RequestResult, RequestSpec, RootState
from aerix_server.session.folders import SessionFiles
from aerix_server.session.instructions import read_instructions
from aerix_server.session.journal import Journal
from aerix_server.session.log import LogFailed
from aerix_server.session.log_reader import read_log
from aerix_server.session.rebuild import rebuild
from aerix_server.session.shadow import Shadow, shadow_folder
from aerix_server.session.snapshot import Taken
from aerix_server.tools.base import Leftover

Report = Callable[[ProgressEvent | Notice], None]
Bind = Callable[[Settings, Report], Awaitable[BoundPool]]
Run = Callable[[RequestSpec, RequestPorts, RootState | None], Awaitable[RequestResult]]


@dataclass(frozen=True)
class Place:
    """What all requests of a session share. `store` holds snapshots' objects; `gate` is asked where a plan is gated;
    `leave` takes the processes that a cancelled request does not wait for;
    `start` makes the session's first event, and `notices` are told to the user with it."""

    cwd: Path
    settings: Settings
    files: SessionFiles
    store: Path
    journal: Journal
    bind: Bind
    run: Run
    gate: Callable[[str, ProposedPlan], Awaitable[PlanDecision]]
    overlay: Callable[[Path], str | None]
    leave: Callable[[Leftover], None]
    start: Callable[[BoundPool | None, Taken], SessionStart]
    notices: Sequence[str]


@dataclass
class Request:
    """A request under way or ended. `done` has the outcome once every event is published; `refused` is told instead.
    `touched` are files its agents say they wrote, `shadow` keeps those files as they were."""

    spec: RequestSpec
    prompt: str
    attachments: list[dict[str, Any]]
    done: asyncio.Future[Outcome]
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    refused: AerixError | None = None
    snapshot: Snapshot | None = None
    touched: dict[str, None] = field(default_factory=dict)
    shadow: Shadow | None = None


async def ports_for(request: Request, place: Place, bound: BoundPool, taken: Taken) -> RequestPorts:
    """What the runtime works through; what its agents write is noted on the request."""
    top = taken.repository.top if taken.repository else None
    instructions = await asyncio.to_thread(read_instructions, top, place.cwd)
    for notice in instructions.notices:
        place.journal.emit(Notice(request=request.spec.id, level="warning", text=notice))

    def emit(event: Event) -> None:
        if isinstance(event, AgentEnd):
            request.touched.update(dict.fromkeys(event.files_touched))
        place.journal.emit(event)

    async def gate(plan: ProposedPlan) -> PlanDecision:
        return await place.gate(request.spec.id, plan)

    request.shadow = Shadow(shadow_folder(place.store, place.files.id, request.spec.id))
    return RequestPorts(
        pool=bound.pool,
        main=bound.main.member,
        decision=bound.decision.member,
        settings=place.settings,
        cwd=place.cwd,
        emit=emit,
        spool_dir=place.files.spool,
        cancelled=request.cancelled,
        gate=gate if request.spec.gate_plan else None,
        overlay=place.overlay,
        instructions=instructions.text,
        before_write=request.shadow.keep,
        leave=place.leave,
    )


async def history_for(request: Request, place: Place) -> RootState | None:
    """The root as the log tells it; None where no earlier request made one. Raises LogFailed."""

    def read() -> RootState | None:
        try:
            events = read_log(place.files.log).events
        except OSError as error:
            raise LogFailed(f"The session's log {place.files.log} cannot be read: {error.strerror}.") from error
        state = rebuild(events, lambda name: read_spooled(place.files.spool, name))
        return state if state.segments else None

    return None if request.spec.id == "r1" else await asyncio.to_thread(read)


def read_spooled(spool: Path, name: str) -> str | None:
    """A spool file's text, or None when it is gone."""
    if Path(name).name != name:
        return None
    try:
        return (spool / name).read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
