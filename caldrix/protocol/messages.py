"""The messages of protocol version 2 as frozen, strictly typed models.

A request has a `type`, an `id` and its fields; unknown fields are ignored. A reply repeats the request's `id`.
`parse_request` and `parse_reply` turn payloads into values, `payload` turns values back; a None field is left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

PROTOCOL_VERSION: Final = 2
CONTEXT_GRACE_S: Final = 60.0
MAX_SEGMENTS: Final = 20_000
"""Of a context, and edits of a request: each is looked at while other clients wait."""
MAX_FLAGS: Final = 64
"""Words: the time of reading them grows with the square of their number."""

Role = Literal["system", "user", "assistant"]
ConstraintKind = Literal["OneOf", "Json", "Regex", "Lark"]
Finish = Literal["stop", "length", "cancelled"]
UInt = Annotated[int, Field(ge=0, lt=2**64)]
Name = Annotated[str, Field(min_length=1, max_length=256)]
Reference = Annotated[str, Field(min_length=1, max_length=4096)]


class Value(BaseModel):
    """A part of a message."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


# --- parts -----------------------------------------------------------------------------------------------------------


class Segment(Value):
    """A piece of a context: text with a role; pinned is the client's own mark and changes nothing here."""

    id: Name
    role: Role
    text: str
    pinned: bool = False


class SegmentInfo(Value):
    """A segment as the pool answers it; `tokens` counts its own text, template text belongs to no segment."""

    id: str
    role: Role
    pinned: bool
    tokens: int
    text: str | None = None


class Sampling(Value):
    """Temperature 0 takes the largest logit."""

    temperature: float = Field(0.0, ge=0, le=100)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    min_p: float = Field(0.0, ge=0, le=1)
    repeat_penalty: float = Field(1.0, ge=0.01, le=100)
    seed: UInt = 0


class OneOf(Value):
    kind: Literal["OneOf"]
    options: list[str]


class Json(Value):
    kind: Literal["Json"]
    schema_: Annotated[dict[str, Any] | bool, Field(alias="schema")]

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", populate_by_name=True)


class Regex(Value):
    kind: Literal["Regex"]
    pattern: str


class Lark(Value):
    kind: Literal["Lark"]
    grammar: str


Constraint = Annotated[OneOf | Json | Regex | Lark, Field(discriminator="kind")]


class Append(Value):
    """Where a generation's output goes: a new assistant segment of this id."""

    id: Name
    pinned: bool = False


class ClientInfo(Value):
    name: str
    version: str


class PoolInfo(Value):
    version: str
    pid: int
    started_at: str


class Limits(Value):
    frame_bytes: int
    depth: int
    context_grace_s: float


class TemplateInfo(Value):
    """How a member's chat template is served.

    `source`: "gguf" or "plain" (the model has no usable one). `system`: "native" or "folded" into the first user turn.
    `alternates`: neighbours of one role are merged. `prefix_stable`: appending a turn leaves the rows before it alone.
    """

    source: str
    system: str
    alternates: bool
    prefix_stable: bool


class QueueInfo(Value):
    running: int
    waiting: int


class StoreInfo(Value):
    entries: int
    bytes: int
    hits: int
    misses: int
    evicted: int


class Rates(Value):
    """Measured on this member; None until something was timed."""

    prefill_tok_s: float | None = None
    decode_tok_s: float | None = None


class Member(Value):
    """One loaded model. `window` in tokens; sizes in bytes; `lane` is the device it computes on."""

    member: str
    model: str
    status: Literal["loading", "ready", "failed", "unloading"]
    lane: str
    threads: int
    window: int
    footprint_bytes: int
    context_budget_bytes: int
    constraints: list[ConstraintKind]
    template: TemplateInfo
    queue: QueueInfo
    store: StoreInfo
    rates: Rates
    notes: list[str] = []
    error: str | None = None


class MemoryInfo(Value):
    limit_bytes: int
    used_bytes: int


class Score(Value):
    """An option of OneOf: the sum of its tokens' log-probabilities, and its share among the options."""

    option: str
    logprob: float
    probability: float


class Choice(Value):
    option: str
    scores: list[Score]


class TopLogprob(Value):
    token: int
    text: str
    logprob: float


class TokenLogprob(Value):
    """One completion token; log-probabilities are taken before the mask."""

    token: int
    text: str
    logprob: float
    forced: bool
    top: list[TopLogprob]


class Usage(Value):
    """Token counts of one generation; `recomputed_from` is the first row that was computed."""

    prompt_tokens: int
    recomputed_from: int
    completion_tokens: int
    forced_tokens: int
    drafted_tokens: int
    accepted_tokens: int


class Timing(Value):
    queued_ms: int
    prefill_ms: int
    decode_ms: int


# --- edits -----------------------------------------------------------------------------------------------------------


class AppendEdit(Value):
    op: Literal["append"]
    segment: Segment


class ReplaceEdit(Value):
    op: Literal["replace"]
    id: Name
    text: str


class RemoveEdit(Value):
    op: Literal["remove"]
    id: Name


class PinEdit(Value):
    op: Literal["pin"]
    id: Name
    pinned: bool


Edit = Annotated[AppendEdit | ReplaceEdit | RemoveEdit | PinEdit, Field(discriminator="op")]


# --- requests --------------------------------------------------------------------------------------------------------


class Message(Value):
    """Something that crosses the wire."""

    id: UInt


class Hello(Message):
    type: Literal["Hello"] = "Hello"
    version: int
    client: ClientInfo
    client_id: Name


class PoolStatusRequest(Message):
    type: Literal["PoolStatus"] = "PoolStatus"


class MemberLoad(Message):
    type: Literal["MemberLoad"] = "MemberLoad"
    model: Reference
    member: Name | None = None
    flags: list[Annotated[str, Field(max_length=4096)]] | None = Field(None, max_length=MAX_FLAGS)


class MemberUnload(Message):
    type: Literal["MemberUnload"] = "MemberUnload"
    member: str


class ContextCreate(Message):
    type: Literal["ContextCreate"] = "ContextCreate"
    member: str
    segments: list[Segment] = Field(max_length=MAX_SEGMENTS)


class ContextEdit(Message):
    type: Literal["ContextEdit"] = "ContextEdit"
    context: str
    version: int | None = None
    edits: list[Edit] = Field(max_length=MAX_SEGMENTS)


class ContextFork(Message):
    type: Literal["ContextFork"] = "ContextFork"
    context: str
    until: str | None = None


class ContextShow(Message):
    type: Literal["ContextShow"] = "ContextShow"
    context: str
    text: bool = False


class ContextDrop(Message):
    type: Literal["ContextDrop"] = "ContextDrop"
    context: str


class Generate(Message):
    type: Literal["Generate"] = "Generate"
    context: str
    max_new_tokens: int = Field(ge=1)
    constraint: Constraint | None = None
    sampling: Sampling = Sampling()
    logprobs: int | None = Field(None, ge=0, le=20)
    append: Append | None = None
    draft: Literal["auto", "off"] = "auto"


class Cancel(Message):
    type: Literal["Cancel"] = "Cancel"
    target: UInt


class PoolStop(Message):
    type: Literal["PoolStop"] = "PoolStop"
    grace_s: float | None = Field(None, ge=0)


Request = Annotated[
    Hello
    | PoolStatusRequest
    | MemberLoad
    | MemberUnload
    | ContextCreate
    | ContextEdit
    | ContextFork
    | ContextShow
    | ContextDrop
    | Generate
    | Cancel
    | PoolStop,
    Field(discriminator="type"),
]


# --- replies ---------------------------------------------------------------------------------------------------------


class Welcome(Message):
    type: Literal["Welcome"] = "Welcome"
    version: int
    pool: PoolInfo
    limits: Limits
    members: list[Member]


class PoolStatus(Message):
    type: Literal["PoolStatus"] = "PoolStatus"
    pool: PoolInfo
    members: list[Member]
    connections: int
    contexts: int
    memory: MemoryInfo
    idle_timeout_s: float
    idle_for_s: float


class MemberLoaded(Message):
    type: Literal["MemberLoaded"] = "MemberLoaded"
    member: Member


class Ok(Message):
    type: Literal["Ok"] = "Ok"


class ContextInfo(Message):
    """A context after a change; `tokens` is the whole rendered prompt, generation header included."""

    type: Literal["ContextInfo"] = "ContextInfo"
    context: str
    member: str
    version: int
    window: int
    tokens: int
    segments: list[SegmentInfo]


class Queued(Message):
    type: Literal["Queued"] = "Queued"
    position: int
    waiting_s: float | None = None


class Progress(Message):
    """`done` of `total` rows (prefill) or bytes (download); `recomputed_from` stands in prefill only."""

    type: Literal["Progress"] = "Progress"
    phase: Literal["prefill", "download", "precheck", "load"]
    done: int
    total: int
    recomputed_from: int | None = None


class Delta(Message):
    """Whole characters only; `tokens` is how many completion tokens it stands for, `forced` how many of them."""

    type: Literal["Delta"] = "Delta"
    text: str
    tokens: int
    forced: int


class Done(Message):
    type: Literal["Done"] = "Done"
    finish: Finish
    text: str
    usage: Usage
    timing: Timing
    choice: Choice | None = None
    logprobs: list[TokenLogprob] | None = None
    segment: SegmentInfo | None = None
    context_version: int | None = None


class Error(Message):
    """`code` is one of `errors.ERROR_CODES`; `supported` stands with code "version" only."""

    type: Literal["Error"] = "Error"
    code: str
    message: str
    detail: dict[str, Any] | None = None
    supported: list[int] | None = None


Reply = Annotated[
    Welcome | PoolStatus | MemberLoaded | Ok | ContextInfo | Queued | Progress | Delta | Done | Error,
    Field(discriminator="type"),
]

_REQUESTS: TypeAdapter[Request] = TypeAdapter(Request)
_REPLIES: TypeAdapter[Reply] = TypeAdapter(Reply)


def parse_request(payload: dict[str, Any]) -> Request:
    """Raises pydantic.ValidationError; `refusal_text` makes a sentence of it."""
    return _REQUESTS.validate_python(payload)


def parse_reply(payload: dict[str, Any]) -> Reply:
    """Raises pydantic.ValidationError."""
    return _REPLIES.validate_python(payload)


def payload(message: Message) -> dict[str, Any]:
    """The map that goes into a frame."""
    return message.model_dump(by_alias=True, exclude_none=True)
