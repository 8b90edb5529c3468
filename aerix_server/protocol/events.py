"""The one closed union of events: a value is a log line and, with its session, an `aerix/event` notification.

Fields are snake_case on the wire as in the log (spec 2, section 4). A field that is None is left out.
The runtime makes events without `seq` and `time`; the session stamps them when it writes the line.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from aerix_server.protocol.outcomes import OutcomeKind

Role = Literal["system", "user", "assistant"]
Route = Literal["answer", "edit", "investigate", "plan"]
AgentKind = Literal["root", "implementer", "verifier"]


class Value(BaseModel):
    """A part of an event."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Usage(Value):
    """Tokens. Of one generation, or summed over a request (then the two row fields are sums too)."""

    prompt_tokens: int = 0
    recomputed_from: int = 0
    completion_tokens: int = 0
    forced_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        mine, theirs = self.model_dump(), other.model_dump()
        return Usage(**{name: mine[name] + theirs[name] for name in mine})


class Timing(Value):
    """Milliseconds."""

    queued_ms: int
    prefill_ms: int
    decode_ms: int


class OptionScore(Value):
    option: str
    logprob: float
    probability: float


class Call(Value):
    """One tool call of a turn; ids are c1, c2, … and rise over an agent's life."""

    id: str
    tool: str
    input: dict[str, Any]


class Doubt(Value):
    """A tool's name or a path of a call that the model found unlikely: `probability` is its least likely token's."""

    call: str
    field: Literal["tool", "path"]
    value: str
    probability: float


class ToolResult(Value):
    """What a call gave: `text` is what the model sees under its `[tool cN]` head."""

    call: str
    tool: str
    text: str
    error: bool
    ms: int
    truncated: bool | None = None
    spool: str | None = None


class Check(Value):
    """A command that bash ran to its end in the foreground, and its exit status."""

    command: str
    exit: int


class Snapshot(Value):
    """What the diff of a request starts from. `kind`: commit, tree, empty or none (no repository)."""

    kind: Literal["commit", "tree", "empty", "none"]
    ref: str | None = None
    notice: str | None = None


class GitInfo(Value):
    head: str | None
    branch: str | None
    dirty: bool


class ProfileInfo(Value):
    name: str
    branch: str
    commit: str
    tuned: int = 0


class DiffStat(Value):
    added: int
    removed: int
    files: int


class ReplacedSegment(Value):
    id: str
    marker: str
    tokens: int


class EventBase(Value):
    """`v`, `seq` and `time` (RFC 3339, UTC, milliseconds) are stamped by the session."""

    v: Literal[1] = 1
    seq: int = 0
    time: str = ""
    agent: str | None = None
    request: str | None = None


class SessionStart(EventBase):
    type: Literal["session.start"] = "session.start"
    id: str
    cwd: str
    project: str
    version: str
    model: str
    member: str
    lane: str
    window: int
    pool: str
    profile: ProfileInfo | None = None
    git: GitInfo | None = None
    settings_hash: str
    source: Literal["new", "resume", "fork", "import"]
    title: str | None = None
    parent: str | None = None


class RequestStart(EventBase):
    type: Literal["request.start"] = "request.start"
    request: str
    prompt: str
    attachments: list[dict[str, Any]] = []
    snapshot: Snapshot


class RouteEvent(EventBase):
    """`forced` tells that the caller named the route, so that nothing was generated; `scores` is then empty."""

    type: Literal["route"] = "route"
    choice: Route
    scores: list[OptionScore]
    matched: bool
    member: str
    ms: int
    forced: bool | None = None


class AgentSpawn(EventBase):
    type: Literal["agent.spawn"] = "agent.spawn"
    agent: str
    parent: str | None
    kind: AgentKind
    definition: str | None = None
    member: str
    depth: int
    brief: str | None = None
    check: str | None = None


class SegmentEvent(EventBase):
    """A change of a context. `tokens` is the pool's count; `text_ref` names a spool file in place of a long text."""

    type: Literal["segment"] = "segment"
    agent: str
    context: str
    op: Literal["append", "replace", "remove"]
    id: str
    role: Role
    label: str
    text: str | None = None
    text_ref: str | None = None
    tokens: int
    pinned: bool


class MessageEvent(EventBase):
    """A turn, a tool result, or a note to the model. `seed` is the sampling seed of a generated turn."""

    type: Literal["message"] = "message"
    agent: str
    turn: int
    role: Literal["assistant", "tool", "user"]
    raw: str | None = None
    thought: str | None = None
    calls: list[Call] | None = None
    doubts: list[Doubt] | None = None
    final: Any = None
    result: ToolResult | None = None
    text: str | None = None
    usage: Usage | None = None
    timing: Timing | None = None
    recomputed_from: int | None = None
    seed: int | None = None
    error: str | None = None


class ContextOp(EventBase):
    """Token counts of the whole context before and after."""

    type: Literal["context.op"] = "context.op"
    agent: str
    op: Literal["status", "drop", "summarize", "pin", "unpin", "note"]
    ids: list[str] | None = None
    text: str | None = None
    before: int
    after: int


class Compaction(EventBase):
    type: Literal["compaction"] = "compaction"
    agent: str
    before: int
    after: int
    target: int
    replaced: list[ReplacedSegment]
    blocked: bool | None = None


class PlanEvent(EventBase):
    type: Literal["plan"] = "plan"
    agent: str
    op: Literal["write", "read"]
    text: str
    gated: bool
    decision: Literal["accept", "edit", "abort"] | None = None


class JobEvent(EventBase):
    type: Literal["job"] = "job"
    agent: str
    job: str
    event: Literal["start", "exit", "killed"]
    command: str | None = None
    code: int | None = None


class HookEvent(EventBase):
    type: Literal["hook"] = "hook"
    event: str
    command: str
    ms: int
    outcome: str
    exit: int | None = None
    decision: str | None = None
    reason: str | None = None


class Verify(EventBase):
    type: Literal["verify"] = "verify"
    agent: str
    piece: str
    attempt: int
    verdict: Literal["pass", "fail"]
    reason: str
    checks: list[Check] = []


class Permission(EventBase):
    type: Literal["permission"] = "permission"
    agent: str
    call: str
    rule: str | None = None
    decision: Literal["allow", "deny"]
    by: str


class AgentEnd(EventBase):
    """`files_touched` and `checks_run` are what the tools did, never the model's words."""

    type: Literal["agent.end"] = "agent.end"
    agent: str
    outcome: OutcomeKind
    reason: str | None = None
    turns: int
    usage: Usage
    files_touched: list[str]
    checks_run: list[Check]


class RequestEnd(EventBase):
    type: Literal["request.end"] = "request.end"
    request: str
    outcome: OutcomeKind
    reason: str | None = None
    diff: DiffStat
    usage: Usage
    ms: int


class SessionEnd(EventBase):
    type: Literal["session.end"] = "session.end"
    reason: str


class TurnDelta(EventBase):
    """Live only: text of a turn as it streams."""

    type: Literal["turn.delta"] = "turn.delta"
    agent: str
    turn: int
    text: str


class ProgressEvent(EventBase):
    """Live only: what the agent waits for. `done` of `total` rows or bytes, or the place in the queue."""

    type: Literal["progress"] = "progress"
    phase: Literal["autostart", "queue", "prefill", "download", "precheck", "load"]
    done: int
    total: int
    detail: str | None = None


class UsageEvent(EventBase):
    """Live only: tokens of the root's context, by the pool's count."""

    type: Literal["usage"] = "usage"
    tokens: int
    window: int
    usage: Usage | None = None


class Notice(EventBase):
    """Live only: a line for the user."""

    type: Literal["notice"] = "notice"
    level: Literal["info", "warning", "error"]
    text: str


LoggedEvent = (
    SessionStart
    | RequestStart
    | RouteEvent
    | AgentSpawn
    | SegmentEvent
    | MessageEvent
    | ContextOp
    | Compaction
    | PlanEvent
    | JobEvent
    | HookEvent
    | Verify
    | Permission
    | AgentEnd
    | RequestEnd
    | SessionEnd
)
LiveEvent = TurnDelta | ProgressEvent | UsageEvent | Notice
Event = LoggedEvent | LiveEvent

_EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])

LIVE_TYPES = frozenset({"turn.delta", "progress", "usage", "notice"})
# The kinds after whose line the log is fsynced (spec 4).
DURABLE_TYPES = frozenset({"message", "plan", "agent.end", "session.end"})


def parse_event(value: dict[str, Any]) -> Event:
    """Raises pydantic.ValidationError, also for an unknown type."""
    return _EVENTS.validate_python(value)


def dump_event(event: Event) -> dict[str, Any]:
    """The event as a JSON object; fields that are None are left out, except an agent.spawn's parent and git's."""
    value = event.model_dump(exclude_none=True)
    if isinstance(event, AgentSpawn):
        value.setdefault("parent", None)
    return value
