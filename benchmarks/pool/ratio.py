"""Ratios with their spread, and what is wanted of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal

Unit = Literal["×", "%", "µs"]
Verdict = Literal["yes", "within the spread", "no"]

DIGITS: Final = 2
"""A ratio is compared as it is shown."""


@dataclass(frozen=True)
class Wanted:
    """A bound on a ratio's median."""

    kind: Literal["at least", "at most"]
    value: float

    def text(self, unit: Unit) -> str:
        return f"{'≥' if self.kind == 'at least' else '≤'} {self.value:g} {unit}"


@dataclass(frozen=True)
class Ratio:
    """One figure of one model: a value for each repeat, or the reason why there is none.

    `name` is of the form "A against B" and a value above 1 says that A is better, unless `unit` is "%" or "µs", where
    less is better. `sides` are the absolute values behind it, one for each repeat, by a label with its unit.
    """

    measurement: str
    model: str
    name: str
    values: tuple[float, ...] = ()
    unit: Unit = "×"
    wanted: Wanted | None = None
    sides: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    note: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    """What the sides wrote, for who wants to look."""
    reason: str = ""
    """Why it was not measured; empty when it was."""


@dataclass(frozen=True)
class Spread:
    """The median of some values, and their ends."""

    middle: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Raises ValueError for no values."""
    if not values:
        raise ValueError("there are no values to take a median of")
    return Spread(median(values), min(values), max(values))


def quotients(above: Sequence[float], below: Sequence[float]) -> tuple[float, ...]:
    """Repeat by repeat, so that noise which hit both sides of one repeat divides out.

    Raises ValueError for sides of different lengths, or a divisor that is not above 0.
    """
    if any(value <= 0 for value in below):
        raise ValueError(f"a ratio needs divisors above 0, not {list(below)}")
    return tuple(a / b for a, b in zip(above, below, strict=True))


def percent_over(above: Sequence[float], below: Sequence[float]) -> tuple[float, ...]:
    """How much more `above` is than `below`, in percent, repeat by repeat."""
    return tuple(100 * (value - 1) for value in quotients(above, below))


def verdict(values: Sequence[float], wanted: Wanted) -> Verdict:
    """ "within the spread": the median misses the bound, but a repeat met it."""
    seen = spread([round(value, DIGITS) for value in values])
    if wanted.kind == "at least":
        met, touched = seen.middle >= wanted.value, seen.high >= wanted.value
    else:
        met, touched = seen.middle <= wanted.value, seen.low <= wanted.value
    if met:
        return "yes"
    return "within the spread" if touched else "no"
