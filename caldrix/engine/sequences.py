"""Live sequences joined to the prefix store: how a prompt's rows come to stand, and what becomes of those not needed.

A sequence is running while a generation uses it, else idle: it stays in the cache for the next prompt that goes on from
it. Idle rows slow every pass, since attention runs over all cells in use; those that a running sequence shares cost
nothing. So when another generation starts, idle sequences with rows of their own go to the store.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, groupby

import numpy as np

from caldrix.engine.backend import MAX_OUTPUT_ROWS, MIN_PASS_ROWS, Backend, EngineFailed, Logits, NoRoom, Row
from caldrix.engine.cells import Cells
from caldrix.engine.prefix import Ids, PrefixStore, as_ids, common_prefix

log = logging.getLogger(__name__)

WORTH_SAVING_ROWS = 16
"""Fewer rows than this are computed again faster than a piece pays for its bytes."""


@dataclass
class Live:
    """A sequence in the cache and the tokens whose rows it holds."""

    ids: list[int]
    running: bool
    used: int


class Sequences:
    """Owned by the engine thread. Sequence numbers are the backend's."""

    def __init__(self, backend: Backend, store: PrefixStore) -> None:
        facts = backend.facts
        self._backend = backend
        self._cells = Cells(facts.cells)
        self._live: dict[int, Live] = {}
        self._numbers = list(range(facts.sequences - 1, -1, -1))
        self._clock = count(1)
        self.store = store
        self.can_cut = facts.block_rows > 0
        self.hits = 0
        self.misses = 0

    def rows(self, sequence: int) -> int:
        """How many rows stand."""
        return len(self._live[sequence].ids)

    def ids(self, sequence: int) -> list[int]:
        """The tokens whose rows stand. Not to be changed."""
        return self._live[sequence].ids

    def room(self) -> int:
        """Cells that are free, or would be with every idle sequence gone."""
        running = [number for number, live in self._live.items() if live.running]
        return self._cells.total - self._cells.held_by(running)

    def known(self, ids: Sequence[int]) -> int:
        """How long a prefix of `ids` stands or is stored."""
        wanted = as_ids(ids)
        return max(self._nearest(wanted)[1], self.store.longest(wanted)[1])

    def fresh_rows(self, ids: Sequence[int], most: int) -> int:
        """Cells that `ids`, resumed at `most`, would take beside the sequences that stand."""
        return len(ids) - self._nearest(as_ids(ids)[: max(0, most)])[1]

    def resume(self, ids: Sequence[int], most: int) -> int:
        """A running sequence on which the longest known prefix of `ids` stands, `most` rows of it at the most."""
        wanted = as_ids(ids)[: max(0, most)]
        sequence = self._loaded(wanted)
        if sequence is None:
            source, shared = self._nearest(wanted)
            sequence = self._taken(source, shared) if source is not None and shared else self._fresh()
        self._live[sequence].running = True
        self._settle(sequence)
        if self.rows(sequence):
            self.hits += 1
        else:
            self.misses += 1
        return sequence

    def checkpoint(self, ids: Sequence[int], start: int) -> int | None:
        """Where a model that cannot be cut should save its state on the way to the end of `ids`: at the point up to
        which another known prompt goes along, so that the next one of the family resumes there. None: nowhere."""
        if self.can_cut:
            return None
        point = min(self.store.branching(as_ids(ids)), len(ids) - MIN_PASS_ROWS)
        return point if point - start >= WORTH_SAVING_ROWS else None

    def decode(self, passes: Sequence[tuple[int, Sequence[int], int]]) -> list[Logits]:
        """One pass: for each (sequence, tokens, wanted) the tokens' rows, and the logits of the last `wanted` of them.

        Raises NoRoom, which changes nothing, or EngineFailed, after which the sequences are empty.
        """
        self._make_room(sum(len(tokens) for _, tokens, _ in passes))
        rows = [
            Row(token, self.rows(sequence) + place, sequence, place >= len(tokens) - wanted)
            for sequence, tokens, wanted in passes
            for place, token in enumerate(tokens)
        ]
        try:
            logits = self._backend.decode(rows)
        except EngineFailed:
            for sequence, _, _ in passes:
                self._empty(sequence)
            raise
        for sequence, tokens, _ in passes:
            self._cells.take(sequence, len(tokens))
            self._live[sequence].ids.extend(tokens)
        ends = np.cumsum([wanted for _, _, wanted in passes])
        return np.split(logits, ends[:-1])

    def keep(self, sequence: int, rows: int) -> None:
        """Cut a running sequence to its first `rows`; to none where the model lacks some of those, which costs a
        prefill and never a refusal."""
        if rows >= self.rows(sequence):
            return
        if not self._backend.keep(sequence, rows):
            log.warning(
                "a sequence of %d rows could not be cut to %d: they are computed again", self.rows(sequence), rows
            )
            self._empty(sequence)
            return
        self._cells.keep(sequence, rows)
        del self._live[sequence].ids[rows:]

    def save(self, sequence: int) -> None:
        """Put what stands into the store, as far as it is not there."""
        ids = self._live[sequence].ids
        self.store.put(as_ids(ids), lambda start, end: self._backend.save(sequence, start, end), WORTH_SAVING_ROWS)

    def rest(self, sequence: int) -> None:
        """A generation has ended: its sequence is idle."""
        live = self._live[sequence]
        live.running, live.used = False, next(self._clock)
        if not live.ids:
            self._drop(sequence)

    def put_away(self, sequence: int) -> None:
        """Store a sequence and free its cells."""
        self.save(sequence)
        self._drop(sequence)

    def put_all_away(self) -> None:
        """As at the end: what stands goes to the store."""
        for sequence in list(self._live):
            self.put_away(sequence)

    def branch(self, sequence: int, runs: Sequence[Sequence[int]]) -> Iterator[list[tuple[int, Logits]]]:
        """The logits of every row of each run after the sequence, which stays as it is: a list of pieces (the run's
        number, its next rows) for each pass. Close the iterator when it is left early.

        Raises NoRoom, which changes nothing, or EngineFailed, after which the sequence is empty.
        """
        start = self.rows(sequence)
        rows = [
            (number, token, position) for number, run in enumerate(runs) for position, token in enumerate(run, start)
        ]
        copies = self._copies(sequence, len(runs))
        try:
            for offset in range(0, len(rows), MAX_OUTPUT_ROWS):
                part = rows[offset : offset + MAX_OUTPUT_ROWS]
                logits = self._branch_pass(sequence, [Row(t, p, copies[n], wanted=True) for n, t, p in part])
                for number in {number for number, _, _ in part}:
                    self._cells.take(copies[number], sum(n == number for n, _, _ in part))
                ends = [*accumulate(len(list(run)) for _, run in groupby(number for number, _, _ in part))]
                numbers = [number for number, _ in groupby(number for number, _, _ in part)]
                yield list(zip(numbers, np.split(logits, ends[:-1]), strict=True))
        finally:
            for copy in copies:
                self._backend.clear(copy)
                self._cells.keep(copy, 0)
            self._numbers += copies

    def _copies(self, sequence: int, count: int) -> list[int]:
        while len(self._numbers) < count:
            self._retire_oldest()
        copies = [self._numbers.pop() for _ in range(count)]
        for copy in copies:
            self._backend.copy(sequence, copy)
            self._cells.share(sequence, copy)
        return copies

    def _branch_pass(self, sequence: int, rows: Sequence[Row]) -> Logits:
        self._make_room(len(rows))
        try:
            return self._backend.decode(rows)
        except EngineFailed:
            self._empty(sequence)
            raise

    def _nearest(self, wanted: Ids) -> tuple[int | None, int]:
        best: tuple[int | None, int] = (None, 0)
        for number, live in self._live.items():
            shared = common_prefix(as_ids(live.ids), wanted)
            if not self.can_cut and shared < len(live.ids):
                continue
            if shared > best[1] or (shared == best[1] and shared and not live.running):
                best = number, shared
        return best

    def _taken(self, source: int, shared: int) -> int:
        """The source itself where it is idle, what is cut off stored; else a copy, which shares its rows."""
        live = self._live[source]
        if not live.running:
            if shared < len(live.ids):
                self.save(source)
                self.keep(source, shared)
            return source
        if not self._numbers:
            self._retire_oldest()
        number = self._numbers.pop()
        self._backend.copy(source, number)
        self._cells.share(source, number)
        self._live[number] = Live(list(live.ids), running=True, used=0)
        self.keep(number, shared)
        return number

    def _loaded(self, wanted: Ids) -> int | None:
        """The longest stored prefix as a new sequence. None: it is no longer than what stands in the cache, has no room
        as rows of its own, or cannot be loaded, which costs a prefill and never a refusal."""
        path, stored = self.store.longest(wanted)
        if stored <= self._nearest(wanted)[1] or stored + self._backend.facts.block_rows > self.room():
            return None
        parts = self.store.read(path, stored)
        if parts is None:
            return None
        sequence = self._fresh()
        self._settle(sequence)
        try:
            self._make_room(stored + self._backend.facts.block_rows)
            self._backend.load(sequence, parts)
        except (EngineFailed, NoRoom) as error:
            log.warning("a stored prefix was not used: %s", error)
            self.store.forget(path[-1])
            self._drop(sequence)
            return None
        self._cells.take(sequence, stored)
        self._live[sequence].ids = wanted[:stored].tolist()
        return sequence

    def _fresh(self) -> int:
        if not self._numbers:
            self._retire_oldest()
        number = self._numbers.pop()
        self._live[number] = Live([], running=True, used=0)
        return number

    def _settle(self, beside: int) -> None:
        """Store and drop the idle sequences that would slow the passes of `beside`."""
        running = [number for number, live in self._live.items() if live.running]
        for number in [number for number in self._live if number != beside and number not in running]:
            if self._cells.beyond(number, running):
                self.put_away(number)

    def _make_room(self, rows: int) -> None:
        while self._cells.free < rows:
            if all(live.running for live in self._live.values()):
                raise NoRoom(f"{rows} rows are wanted and {self._cells.free} cells are free")
            self._retire_oldest()

    def _retire_oldest(self) -> None:
        idle = [(live.used, number) for number, live in self._live.items() if not live.running]
        if not idle:
            raise NoRoom("every sequence is running")
        self.put_away(min(idle)[1])

    def _empty(self, sequence: int) -> None:
        self._backend.clear(sequence)
        self._cells.keep(sequence, 0)
        self._live[sequence].ids = []

    def _drop(self, sequence: int) -> None:
        self._empty(sequence)
        del self._live[sequence]
        self._numbers.append(sequence)
