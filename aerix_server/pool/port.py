"""The pool as the runtime sees it: contexts with the daemon's counts, and generations. Doubles implement it too."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from aerix_server.protocol.events import OptionScore, Role, Timing, Usage


class PoolFailed(Exception):
    """The pool refused, vanished or was too late; the text is for the user.

    `code` is the pool's error code, or "unavailable" when it did not answer.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class NewSegment:
    id: str
    role: Role
    text: str
    pinned: bool = False


@dataclass(frozen=True)
class CountedSegment:
    id: str
    role: Role
    pinned: bool
    tokens: int


@dataclass(frozen=True)
class ContextState:
    """A context as the daemon counted it after its last change; tokens of the whole prompt included."""

    context: str
    member: str
    version: int
    window: int
    tokens: int
    segments: tuple[CountedSegment, ...]


@dataclass(frozen=True)
class MemberState:
    member: str
    model: str
    lane: str
    window: int
    constraints: frozenset[str]
    prefill_tok_s: float | None
    decode_tok_s: float | None


@dataclass(frozen=True)
class Waiting:
    """The generation waits or prefills: `phase` queue (done = position) or prefill (rows).

    `seconds`: about how long it still waits, by the pool's measure; None where it cannot tell.
    """

    phase: Literal["queue", "prefill"]
    done: int
    total: int
    seconds: float | None = None


@dataclass(frozen=True)
class Text:
    """Whole characters as they come, and the completion tokens they stand for."""

    text: str
    tokens: int


@dataclass(frozen=True)
class TokenLogprob:
    """A token of an output and what the model, asked without any constraint, thought of it.

    `text` has U+FFFD for a part of a character. `forced`: the constraint left no other.
    """

    text: str
    logprob: float
    forced: bool


@dataclass(frozen=True)
class Generated:
    """The last item. `tokens` is the count of the appended segment, `version` the context's after it.

    `logprobs`: of each token of the text, where they were asked for.
    """

    finish: Literal["stop", "length", "cancelled"]
    text: str
    usage: Usage
    timing: Timing
    choice: str | None = None
    scores: tuple[OptionScore, ...] = ()
    appended: CountedSegment | None = None
    version: int | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


GenerationItem = Waiting | Text | Generated


@dataclass(frozen=True)
class GenerationOptions:
    """`constraint` is the protocol's map, such as {"kind": "Json", "schema": …}."""

    max_new_tokens: int
    constraint: dict[str, Any] | None = None
    temperature: float = 0.0
    seed: int = 0
    append_id: str | None = None
    append_pinned: bool = False
    logprobs: bool = False


@dataclass(frozen=True)
class Edit:
    """One change: append (segment), replace (id, text), remove (id) or pin (id, pinned)."""

    op: Literal["append", "replace", "remove", "pin"]
    segment: NewSegment | None = None
    id: str | None = None
    text: str | None = None
    pinned: bool | None = None


class Pool(Protocol):
    """Every method raises PoolFailed."""

    async def member(self, name: str) -> MemberState: ...

    async def create(self, member: str, segments: Sequence[NewSegment]) -> ContextState: ...

    async def edit(self, context: str, edits: Sequence[Edit]) -> ContextState: ...

    async def fork(self, context: str, until: str | None = None) -> ContextState: ...

    async def show(self, context: str) -> ContextState: ...

    async def drop(self, context: str) -> None: ...

    def generate(self, context: str, options: GenerationOptions) -> AsyncGenerator[GenerationItem, None]:
        """Items until one Generated. Closing the iterator early (`aclosing`) cancels the generation."""
        ...

    async def aclose(self) -> None: ...
