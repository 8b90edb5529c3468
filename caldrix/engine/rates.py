"""Measured speeds of a member: rows a second, what a pass of so many rows costs, and the chunk size they give."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from caldrix.engine.backend import MAX_PASS_ROWS, MIN_PASS_ROWS

PASS_SECONDS: Final = 0.8
"""What a prefill pass should take; a cancel is answered within one pass."""
SHARED_PASS_SECONDS: Final = 0.3
"""The same while another generation decodes and stands still for it."""
SHARED_CHUNK: Final = 192
"""With the rows of who decodes it stays within one micro-batch of the engine."""
FIRST_CHUNK: Final = 32
SMOOTHING: Final = 0.3
SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Rows of a pass whose costs are told apart."""


class Rates:
    """Exponential averages. Passes of MIN_PASS_ROWS and more tell the prefill rate, of one row the decode rate."""

    def __init__(self) -> None:
        self.prefill: float | None = None
        self.decode: float | None = None
        self._one: float | None = None
        self._costs: dict[int, tuple[float, float | None]] = {}
        """By rows: seconds of a pass, and those of a pass of one row at that time."""

    def note(self, rows: int, seconds: float) -> None:
        """A pass of `rows` took `seconds`."""
        if seconds <= 0:
            return
        if rows >= MIN_PASS_ROWS:
            self.prefill = _smooth(self.prefill, rows / seconds)
        elif rows == 1:
            self.decode = _smooth(self.decode, 1 / seconds)
            self._one = _smooth(self._one, seconds)
        if rows <= SIZES[-1]:
            size = SIZES[bisect_left(SIZES, rows)]
            known = self._cost(size) if size in self._costs else None
            self._costs[size] = _smooth(known, seconds * size / rows if size != rows else seconds), self._one

    def seconds(self, rows: int) -> float | None:
        """What a pass of `rows` is expected to take: measured, or between two that were. None: nothing is known.

        A cost grows and shrinks with that of one row, which is measured all the time: a machine that was busy when a
        longer pass was last measured is not taken to be so for ever.
        """
        known = sorted(self._costs)
        if not known:
            return None
        place = bisect_left(known, rows)
        if place == len(known):
            return self._cost(known[-1]) * rows / known[-1]
        above = known[place]
        if above == rows or place == 0:
            return self._cost(above)
        below = known[place - 1]
        share = (rows - below) / (above - below)
        return self._cost(below) + share * (self._cost(above) - self._cost(below))

    def _cost(self, size: int) -> float:
        seconds, one_then = self._costs[size]
        return seconds * self._one / one_then if self._one and one_then else seconds

    def chunk(self, remaining: int, *, shared: bool = False) -> int:
        """Rows of the next prefill pass of `remaining`: about PASS_SECONDS, and no tail under MIN_PASS_ROWS is left.

        `shared`: somebody else decodes meanwhile.
        """
        seconds, most = (SHARED_PASS_SECONDS, SHARED_CHUNK) if shared else (PASS_SECONDS, MAX_PASS_ROWS)
        rows = FIRST_CHUNK if self.prefill is None else int(self.prefill * seconds)
        rows = max(2 * MIN_PASS_ROWS, min(most, rows))
        if rows >= remaining:
            return remaining
        return rows if remaining - rows >= MIN_PASS_ROWS else remaining - MIN_PASS_ROWS


def _smooth(before: float | None, value: float) -> float:
    return value if before is None else before + SMOOTHING * (value - before)
