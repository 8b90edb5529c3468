"""One generation as the batch holds it, and the few words about it that several places need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from caldrix.engine.backend import Logits
from caldrix.engine.generate import Generation, Steps
from caldrix.engine.jobs import Failed


@dataclass(eq=False)
class Slot:
    """A generation with its sequence. `ids` are the tokens that stand when its ask is answered, the last `wanted` of
    them with their logits; `got` holds those that came. Without a sequence it was set aside for want of room."""

    generation: Generation
    steps: Steps
    sequence: int | None = None
    ids: list[int] = field(default_factory=list)
    wanted: int = 0
    served: int = 0
    got: list[Logits] = field(default_factory=list)
    meanwhile: Callable[[], None] | None = None
    runs: Sequence[Sequence[int]] | None = None
    """Branches are asked for; `branching` from when their turn has come."""
    branching: Iterator[list[tuple[int, Logits]]] | None = None
    checkpoint: int | None = None
    filled: bool = False
    done: bool = False


def engine_failed(reason: object) -> Failed:
    return Failed("engine_failed", f"the engine failed: {reason}. The request can be tried again.")


def is_broken(logits: Logits) -> bool:
    """The maximum of any NaN is NaN."""
    return bool(np.isnan(logits.max(initial=0.0)))


def count_rows(runs: Sequence[Sequence[int]]) -> int:
    return sum(len(run) for run in runs)
