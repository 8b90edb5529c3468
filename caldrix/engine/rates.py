"""Measured speeds of a member, and the chunk size they give."""

from __future__ import annotations

from caldrix.engine.backend import MIN_PASS_ROWS

PASS_SECONDS = 0.8
"""What a prefill pass should take; a cancel is answered within one pass."""
MAX_CHUNK = 512
FIRST_CHUNK = 32
SMOOTHING = 0.3


class Rates:
    """Rows a second, as exponential averages. Passes of MIN_PASS_ROWS and more tell the prefill rate, of one row the
    decode rate."""

    def __init__(self) -> None:
        self.prefill: float | None = None
        self.decode: float | None = None

    def note(self, rows: int, seconds: float) -> None:
        if seconds <= 0:
            return
        rate = rows / seconds
        if rows >= MIN_PASS_ROWS:
            self.prefill = rate if self.prefill is None else self.prefill + SMOOTHING * (rate - self.prefill)
        elif rows == 1:
            self.decode = rate if self.decode is None else self.decode + SMOOTHING * (rate - self.decode)

    def chunk(self, remaining: int) -> int:
        """Rows of the next prefill pass of `remaining`: about PASS_SECONDS, and no tail under MIN_PASS_ROWS is left."""
        rows = FIRST_CHUNK if self.prefill is None else int(self.prefill * PASS_SECONDS)
        rows = max(2 * MIN_PASS_ROWS, min(MAX_CHUNK, rows))
        if rows >= remaining:
            return remaining
        return rows if remaining - rows >= MIN_PASS_ROWS else remaining - MIN_PASS_ROWS
