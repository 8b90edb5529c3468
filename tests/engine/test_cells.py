"""The count of cells against a naive model of sets: nothing is lost, nothing is held twice."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from caldrix.engine.cells import Cells

TOTAL = 24
SEQUENCES = st.integers(0, 3)


class CellsAgainstSets(RuleBasedStateMachine):
    """The model gives every row a number of its own; sharing copies the numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = Cells(TOTAL)
        self.held: dict[int, list[int]] = {number: [] for number in range(4)}
        self.next = 0

    @property
    def free(self) -> int:
        return TOTAL - len(set().union(*self.held.values()))

    @rule(sequence=SEQUENCES, count=st.integers(0, 12))
    def take(self, sequence: int, count: int) -> None:
        if count > self.free:
            with pytest.raises(ValueError, match=f"{count} cells are wanted and {self.free} are free"):
                self.cells.take(sequence, count)
            return
        self.cells.take(sequence, count)
        self.held[sequence] = [*self.held[sequence], *range(self.next, self.next + count)]
        self.next += count

    @rule(source=SEQUENCES, copy=SEQUENCES)
    def share(self, source: int, copy: int) -> None:
        if source != copy and not self.held[copy]:
            self.cells.share(source, copy)
            self.held[copy] = self.held[source]

    @rule(sequence=SEQUENCES, rows=st.integers(0, 20))
    def keep(self, sequence: int, rows: int) -> None:
        self.cells.keep(sequence, rows)
        self.held[sequence] = self.held[sequence][:rows]

    @rule(sequence=SEQUENCES, others=st.sets(SEQUENCES))
    def beyond(self, sequence: int, others: set[int]) -> None:
        shared = set().union(*(self.held[other] for other in others))
        assert self.cells.beyond(sequence, others) == len(set(self.held[sequence]) - shared)
        assert self.cells.held_by(others) == len(shared)

    @invariant()
    def same_counts(self) -> None:
        assert self.cells.free == self.free
        assert [self.cells.rows(number) for number in self.held] == [len(rows) for rows in self.held.values()]
        assert self.cells.held_by(self.held) == TOTAL - self.free


CellsAgainstSets.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_cells_are_sets = CellsAgainstSets.TestCase


def test_all_that_was_taken_comes_back() -> None:
    cells = Cells(10)
    cells.take(0, 6)
    cells.share(0, 1)
    cells.take(1, 4)
    cells.keep(0, 0)
    assert (cells.free, cells.rows(0), cells.rows(1)) == (0, 0, 10)
    cells.keep(1, 6)
    assert cells.free == 4
    cells.keep(1, 0)
    cells.take(2, 10)
    assert cells.free == 0
