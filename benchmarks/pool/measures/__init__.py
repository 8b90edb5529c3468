"""One measurement a file, each with `measure(bench)`; `MEASURES` names them in the order they are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from benchmarks.pool.bench import Bench
from benchmarks.pool.measures import clients, draft, first_token, mask, overhead, turn
from benchmarks.pool.ratio import Ratio

Measure = Callable[[Bench], Awaitable[list[Ratio]]]

MEASURES: Final[Mapping[str, Measure]] = MappingProxyType(
    {
        "first-token": first_token.measure,
        "turn": turn.measure,
        "draft": draft.measure,
        "clients": clients.measure,
        "mask": mask.measure,
        "overhead": overhead.measure,
    }
)
