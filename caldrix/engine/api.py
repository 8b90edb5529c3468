"""The engine as the daemon sees it: a loader that gives members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from caldrix.engine.jobs import Job, Part, Rendered
from caldrix.protocol.messages import Member

DEFAULT_MAX_BATCH: Final = 4
MAX_BATCH_LIMIT: Final = 32


@dataclass(frozen=True)
class ServingFlags:
    """How a member is served; None leaves the choice to the loader. Sizes in bytes, the window in tokens.

    `max_batch` is how many generations decode together, `store_dir` a folder that keeps prefixes over restarts.
    """

    window: int | None = None
    threads: int | None = None
    context_budget: int | None = None
    memory_limit: int | None = None
    max_batch: int = DEFAULT_MAX_BATCH
    store_dir: Path | None = None


LoadProgress = Callable[[Literal["download", "precheck", "load"], int, int], None]
"""Called from the loading thread: phase, done, total."""


class EngineMember(Protocol):
    """A loaded model with its thread. Every method may be called from any thread; none needs the event loop."""

    def render(self, parts: Sequence[Part]) -> Rendered:
        """The prompt's token ids and the parts' counts. Blocks for milliseconds: call it off the event loop.

        Raises Refused("bad_request") when the model's template cannot render these roles.
        """

    def check(self, job: Job) -> None:
        """Raises Refused (window_exceeded, constraint_invalid, bad_request) for a job that cannot be served. Blocks."""

    def submit(self, job: Job) -> None:
        """Queue a checked job. Its `deliver` gets exactly one Finished or Failed, also on cancel and close."""

    def position(self, job: Job) -> int | None:
        """Jobs ahead of this one (1: it is next, after the running one); 0 while it runs; None when it has ended."""

    def expected_wait(self, job: Job) -> float | None:
        """About how many seconds until a waiting job starts; None: it does not wait, or nothing was measured yet."""

    def status(self, name: str, *, status: Literal["ready", "unloading"] = "ready") -> Member:
        """The member as the protocol shows it."""

    def remember(self, text: str, ids: tuple[int, ...]) -> None:
        """From now on an assistant part of this text is rendered with these ids."""

    def close(self) -> None:
        """End the thread after its present pass, fail what is queued ("shutting_down"), free the model. Blocks."""


class Loader(Protocol):
    """`load_member` of `caldrix.engine.member`, or a double."""

    def __call__(self, reference: str, flags: ServingFlags, progress: LoadProgress, used_bytes: int) -> EngineMember:
        """Load a model. `used_bytes` is what the resident members need already. Blocks for seconds.

        Raises Refused: model_not_found, model_refused, memory, footprint_unknown, bad_request.
        """
