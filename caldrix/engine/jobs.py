"""What goes into a member's queue and what comes out of it. Plain values, shared by the engine and the daemon."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from caldrix.protocol.errors import ErrorCode
from caldrix.protocol.messages import Choice, Constraint, Finish, Role, Sampling, TokenLogprob, Usage


@dataclass(frozen=True)
class Part:
    """A segment to render. `ids` are those its text was generated with; None: tokenise it, or use remembered ones."""

    role: Role
    text: str
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Rendered:
    """A whole prompt, generation header included, and each part's own token count, in the order given."""

    ids: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Prefill:
    """`done` of `total` prompt rows stand; the first one computed was `recomputed_from`."""

    done: int
    total: int
    recomputed_from: int


@dataclass(frozen=True)
class TextDelta:
    """Whole characters of the output, the `tokens` they stand for, and how many of those the constraint forced."""

    text: str
    tokens: int
    forced: int


@dataclass(frozen=True)
class Finished:
    """The last item of a generation. `ids` are the output's own tokens, end of turn not included. Times in ms."""

    finish: Finish
    text: str
    ids: tuple[int, ...]
    usage: Usage
    queued_ms: int
    prefill_ms: int
    decode_ms: int
    choice: Choice | None = None
    logprobs: list[TokenLogprob] | None = None


@dataclass(frozen=True)
class Failed:
    """The last item of a generation that could not be served."""

    code: ErrorCode
    message: str


Item = Prefill | TextDelta | Finished | Failed


@dataclass(eq=False)
class Job:
    """One generation. `deliver` is called from the engine thread with each item, a Finished or Failed last.

    `parts` are the segments that `ids` render, `client` who asks, so that clients are served in turn; `draft` allows
    drafted tokens. `cancel()` may be called from any thread; the engine looks at it between two passes.
    """

    ids: Sequence[int]
    max_new_tokens: int
    deliver: Callable[[Item], None]
    constraint: Constraint | None = None
    sampling: Sampling = field(default_factory=Sampling)
    logprobs: int | None = None
    parts: Sequence[Part] = ()
    client: str = ""
    draft: bool = True
    submitted: float = field(default_factory=time.monotonic)
    _cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()


def never_ran(job: Job) -> Finished:
    """The end of a job that was cancelled before it began."""
    usage = Usage(
        prompt_tokens=len(job.ids),
        recomputed_from=0,
        completion_tokens=0,
        forced_tokens=0,
        drafted_tokens=0,
        accepted_tokens=0,
    )
    waited = round(1000 * (time.monotonic() - job.submitted))
    return Finished("cancelled", "", (), usage, queued_ms=waited, prefill_ms=0, decode_ms=0)
