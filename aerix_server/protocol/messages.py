"""Params and results of the `aerix/…` methods: camelCase on the wire, snake_case here.

Unknown fields of params are ignored with a log line, a wrong type or a missing field is -32602 with the field named.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from aerix_server.protocol.events import ProfileInfo, Route, Usage
from aerix_server.protocol.outcomes import OutcomeKind


class Wire(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")


AbsolutePath = Annotated[str, Field(pattern=r"^/[^\x00]*$", description="an absolute path")]


class Session(Wire):
    """`state`: waiting means that a plan or a permission waits for a person."""

    id: str
    cwd: str
    project: str
    title: str
    created: str
    updated: str
    requests: int
    model: str
    profile: ProfileInfo | None = None
    state: Literal["idle", "running", "waiting"] = "idle"


class Outcome(Wire):
    outcome: OutcomeKind
    text: str | None = None
    output: Any = None
    reason: str | None = None
    usage: Usage
    duration_ms: int
    files_touched: list[str]


class Empty(Wire):
    pass


# --- aerix/session/* -------------------------------------------------------------------------------------------------


class SessionNewParams(Wire):
    cwd: AbsolutePath
    profile: str | None = None
    model: str | None = None
    title: str | None = None


class SessionResult(Wire):
    session: Session


class SessionListParams(Wire):
    cwd: AbsolutePath | None = None
    limit: int | None = Field(None, ge=1)


class SessionListResult(Wire):
    sessions: list[Session]


class SessionAttachParams(Wire):
    session: str
    after_seq: int | None = Field(None, ge=0)
    deltas: bool = True


class PendingPlan(Wire):
    request: str
    agent: str
    plan: str
    version: int
    text: str
    gated: bool = True


class SessionAttachResult(Wire):
    seq: int
    pending: list[PendingPlan]


class SessionDetachParams(Wire):
    session: str


class SessionTranscriptParams(Wire):
    session: str
    agent: str | None = None
    after_seq: int | None = Field(None, ge=0)
    limit: int | None = Field(None, ge=1)


class SessionTranscriptResult(Wire):
    events: list[dict[str, Any]]
    more: bool


# --- aerix/request/* -------------------------------------------------------------------------------------------------


class Attachment(Wire):
    uri: str
    range: dict[str, Any] | None = None


class RequestStartParams(Wire):
    session: str
    prompt: str
    client_request_id: str | None = None
    attachments: list[Attachment] = []
    gate_plan: bool = False
    route: Route | None = None
    max_turns: int | None = Field(None, ge=1)
    output_schema: dict[str, Any] | None = None


class RequestStartResult(Wire):
    request: str


class RequestRef(Wire):
    session: str
    request: str


class RequestCancelResult(Wire):
    cancelled: bool


class PlanDecideParams(Wire):
    session: str
    request: str
    plan: str
    version: int | None = None
    decision: Literal["accept", "edit", "abort"]
    text: str | None = None


class PlanDecideResult(Wire):
    applied: bool
    by: str | None = None
    decision: str | None = None


class PlanProposed(Wire):
    """The notification `aerix/plan/proposed`."""

    session: str
    request: str
    agent: str
    plan: str
    version: int
    text: str
    gated: bool


class PlanDecided(PlanProposed):
    """The notification `aerix/plan/decided`."""

    decision: Literal["accept", "edit", "abort"]
    by: str


class SessionChanged(Wire):
    """The notification `aerix/session/changed`."""

    session: Session


# --- aerix/diff/get --------------------------------------------------------------------------------------------------


class DiffGetParams(Wire):
    session: str
    request: str | None = None
    since: Literal["request", "session"] = "request"


class Hunk(Wire):
    id: str
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    text: str


class FileDiff(Wire):
    path: str
    status: Literal["added", "modified", "deleted", "renamed", "mode"]
    added: int
    removed: int
    binary: bool
    hunks: list[Hunk]


class DiffResult(Wire):
    """`untracked` are files the request touched and git does not know; their text is not in `unified`."""

    files: list[FileDiff]
    untracked: list[str]
    unified: str
    notice: str | None = None


# --- aerix/pool/status -----------------------------------------------------------------------------------------------


class PoolStatusResult(Wire):
    """The pool's own status, its snake_case kept; None when no pool answers on the socket."""

    socket: str
    running: bool
    status: dict[str, Any] | None = None


# --- initialize ------------------------------------------------------------------------------------------------------


class ClientInfo(Wire):
    name: str
    version: str


class ClientCapabilities(Wire):
    plan_gate: bool = False
    permissions: bool = False
    apply_edit: bool = False


class AerixOptions(Wire):
    """`initializationOptions.aerix`. `settings` is a tree of settings keys, the last layer over the files'."""

    client: ClientInfo
    settings: dict[str, Any] = {}
    capabilities: ClientCapabilities = ClientCapabilities()
