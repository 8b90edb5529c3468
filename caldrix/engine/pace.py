"""How many threads a pass gets: the count that was fastest when it was last tried, tried again when the speed falls.

The best count is not the number of cores: beside a compiler or an editor fewer threads are faster, since all wait for
the slowest at every step of a pass. Pure: it is told what passes took and says what the next one gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

TRIES: Final = 3
"""Passes for each count in a trial; the fastest of each counts, since noise only ever adds time."""
SMOOTHING: Final = 0.2
FALLEN: Final = 1.4
"""So many times slower than the count was at its best: the others are tried."""
FIRST_INTERVAL: Final = 128
LAST_INTERVAL: Final = 1024
"""Passes between two trials: doubled as long as they change nothing."""
LONG_FIRST: Final = 16
LONG_LAST: Final = 128
"""The same for passes of many rows, which take about a second."""


class Pace:
    """For passes of one kind, whose times can be compared. `counts` are the thread counts to choose from.

    `tries` passes with each count make a trial; there are `first` passes to the first one, later up to `last`.
    """

    def __init__(
        self,
        counts: Sequence[int],
        threads: int,
        *,
        tries: int = TRIES,
        first: int = FIRST_INTERVAL,
        last: int = LAST_INTERVAL,
    ) -> None:
        self._counts = tuple(counts)
        self.threads = threads
        self._tries, self._first, self._last = tries, first, last
        self._trial: list[int] = []
        self._times: dict[int, float] = {}
        self._best: float | None = None
        self._recent: float | None = None
        self._interval = first
        self._passes = 0

    @property
    def trying(self) -> bool:
        """The next pass is part of a trial: what it takes says nothing about the usual."""
        return bool(self._trial)

    def next(self) -> int:
        """Threads of the next pass."""
        return self._trial[0] if self._trial else self.threads

    def note(self, threads: int, seconds: float) -> None:
        """A pass with so many threads took `seconds`."""
        if self._trial:
            self._note_trial(threads, seconds)
        elif threads == self.threads and len(self._counts) > 1:
            self._passes += 1
            self._best = seconds if self._best is None else min(self._best, seconds)
            self._recent = seconds if self._recent is None else self._recent + SMOOTHING * (seconds - self._recent)
            fallen = self._passes >= 2 * self._tries and self._recent > FALLEN * self._best
            if fallen or self._passes >= self._interval:
                self._interval = self._first if fallen else self._interval
                self._times = {}
                self._trial = [count for _ in range(self._tries) for count in self._counts]

    def _note_trial(self, threads: int, seconds: float) -> None:
        if threads != self._trial[0]:
            return
        self._trial.pop(0)
        self._times[threads] = min(seconds, self._times.get(threads, seconds))
        if not self._trial:
            best = fastest(self._times)
            self._interval = min(2 * self._interval, self._last) if best == self.threads else self._first
            self.threads, self._best = best, self._times[best]
            self._recent, self._passes = None, 0


def fastest(times: Mapping[int, float]) -> int:
    """The thread count with the least time; of equals the smaller, which leaves more to other programs."""
    return min(sorted(times), key=lambda count: times[count])


def thread_counts(cores: int) -> tuple[int, ...]:
    """Counts worth trying on so many cores: each of up to four, else quarters of them; the largest last."""
    if cores <= 4:
        return tuple(range(1, cores + 1))
    return tuple(sorted({max(1, round(cores * share / 4)) for share in (1, 2, 3, 4)}))


class Paces:
    """A Pace for each kind of pass, told apart by rows, since the best count for one row is not that for many."""

    def __init__(self, counts: Sequence[int], few: int, many: int) -> None:
        """`few` and `many`: the counts to begin with, for a row and for a chunk of a prompt."""
        self._counts = counts
        self._start = few, many
        self._paces: dict[int, Pace] = {}

    def threads(self, rows: int) -> int:
        return self._pace(rows).next()

    def trying(self, rows: int) -> bool:
        return self._pace(rows).trying

    def note(self, rows: int, threads: int, seconds: float) -> None:
        kind = _kind(rows)
        self._pace(rows).note(threads, seconds if kind == rows else seconds / rows)

    def _pace(self, rows: int) -> Pace:
        kind = _kind(rows)
        if kind not in self._paces:
            few, many = self._start
            if kind <= EXACT_ROWS:
                self._paces[kind] = Pace(self._counts, few)
            else:
                self._paces[kind] = Pace(self._counts, many, tries=1, first=LONG_FIRST, last=LONG_LAST)
        return self._paces[kind]


EXACT_ROWS: Final = 8
KINDS: Final = (16, 32, 64, 128, 256, 512)


def _kind(rows: int) -> int:
    """Passes of up to EXACT_ROWS are compared with their equals, longer ones with those of about the same length."""
    return rows if rows <= EXACT_ROWS else next((kind for kind in KINDS if rows <= kind), KINDS[-1])
