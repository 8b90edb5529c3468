"""The values a request is given and gives back, and the ports it works through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from aerix_server.config.settings import Settings
from aerix_server.pool.port import Pool
from aerix_server.protocol.events import Event, Role, Route, Usage
from aerix_server.protocol.outcomes import OutcomeKind
from aerix_server.runtime.points import Fire, nobody
from aerix_server.tools.base import Leftover


@dataclass(frozen=True)
class RequestSpec:
    """One request as asked. `id` is r1, r2, … over a session; `output_schema` is a JSON Schema of the final."""

    id: str
    prompt: str
    route: Route | None = None
    max_turns: int | None = None
    gate_plan: bool = False
    output_schema: dict[str, Any] | None = None


@dataclass(frozen=True)
class ProposedPlan:
    """`version` counts the plans the agent wrote in this request, from 1."""

    agent: str
    text: str
    version: int


@dataclass(frozen=True)
class PlanDecision:
    """`text` is the edited plan, where the decision is edit."""

    decision: Literal["accept", "edit", "abort"]
    text: str | None = None


@dataclass(frozen=True)
class SegmentRecord:
    """A segment of a context, as the log tells it."""

    id: str
    role: Role
    label: str
    text: str
    pinned: bool


@dataclass(frozen=True)
class RootState:
    """The root agent as rebuilt from a log; the numbers are the highest used so far, so that none is given twice."""

    segments: tuple[SegmentRecord, ...]
    plan: str
    turns: int
    calls: int
    jobs: int
    segments_made: int


@dataclass(frozen=True)
class Definition:
    """A named kind of agent that pieces of work can be given to.

    `body` goes before its brief. `tools` are those it may call (None: all), `member` is the loaded model it runs on
    (None: its caller's), `max_turns` its budget (None: the setting's).
    """

    name: str
    description: str
    body: str
    tools: tuple[str, ...] | None = None
    member: str | None = None
    max_turns: int | None = None


@dataclass(frozen=True)
class RequestPorts:
    """What a request works with.

    `emit` is synchronous and may raise OSError when the log cannot be written: the request then ends failed.
    `cancelled` set ends the request within 200 ms. `gate`, where given, decides the root's first plan.
    `overlay` gives the unsaved text of an open buffer. `instructions` is the text of the instruction files.
    `fire` is told of each point of the request. `leave` takes processes that a cancelled request could not wait for:
    they have been told to end, and whoever ends the server waits for them. `before_write` is told the real path of a
    file right before a tool changes it, from any thread.
    """

    pool: Pool
    main: str
    decision: str
    settings: Settings
    cwd: Path
    emit: Callable[[Event], None]
    spool_dir: Path
    cancelled: asyncio.Event
    gate: Callable[[ProposedPlan], Awaitable[PlanDecision]] | None
    overlay: Callable[[Path], str | None]
    instructions: str
    definitions: Mapping[str, Definition] = field(default_factory=dict)
    fire: Fire = nobody
    leave: Callable[[Leftover], None] = lambda _leftover: None
    before_write: Callable[[Path], None] = lambda _path: None


@dataclass(frozen=True)
class RequestResult:
    """`turns` are this request's; `usage` its generations, routing included."""

    outcome: OutcomeKind
    reason: str | None
    text: str | None
    output: Any
    usage: Usage
    turns: int
    files_touched: tuple[str, ...]


class Ended(Exception):
    """The agent has come to its end: the one way out of the loop, whatever the reason."""

    def __init__(self, outcome: OutcomeKind, reason: str | None = None, text: str | None = None, output: Any = None):
        super().__init__(reason or outcome)
        self.outcome: OutcomeKind = outcome
        self.reason = reason
        self.text = text
        self.output = output
