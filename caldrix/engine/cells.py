"""Counts the cells that sequences take in one unified cache, where sequences made by copying share them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class Cells:
    """`total` cells. Sequences are numbers; a cell is free when no sequence holds it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._holders = np.zeros(total, np.int32)
        self._free = np.arange(total - 1, -1, -1, dtype=np.int32)
        self._free_count = total
        self._held: dict[int, NDArray[np.int32]] = {}

    @property
    def free(self) -> int:
        return self._free_count

    def rows(self, sequence: int) -> int:
        held = self._held.get(sequence)
        return 0 if held is None else held.size

    def held_by(self, sequences: Iterable[int]) -> int:
        """Cells that any of these holds."""
        return int(self._mark(sequences).sum())

    def beyond(self, sequence: int, others: Iterable[int]) -> int:
        """Cells of a sequence that none of the others holds."""
        held = self._held.get(sequence)
        return 0 if held is None else int((~self._mark(others)[held]).sum())

    def _mark(self, sequences: Iterable[int]) -> NDArray[np.bool_]:
        mark = np.zeros(self.total, bool)
        for sequence in sequences:
            if (held := self._held.get(sequence)) is not None:
                mark[held] = True
        return mark

    def take(self, sequence: int, count: int) -> None:
        """`count` more rows of a sequence. Raises ValueError when so many are not free."""
        if count > self._free_count:
            raise ValueError(f"{count} cells are wanted and {self._free_count} are free")
        self._free_count -= count
        taken = self._free[self._free_count : self._free_count + count].copy()
        self._holders[taken] = 1
        self._held[sequence] = np.concatenate([self._held.get(sequence, taken[:0]), taken])

    def share(self, source: int, target: int) -> None:
        """`target`, which is empty, holds all cells of `source` as well."""
        held = self._held.get(source)
        if held is not None:
            self._holders[held] += 1
            self._held[target] = held

    def keep(self, sequence: int, rows: int) -> None:
        """Let go of all but the first `rows`."""
        held = self._held.get(sequence)
        if held is None or rows >= held.size:
            return
        gone = held[rows:]
        self._holders[gone] -= 1
        freed = gone[self._holders[gone] == 0]
        self._free[self._free_count : self._free_count + freed.size] = freed
        self._free_count += freed.size
        if rows:
            self._held[sequence] = held[:rows]
        else:
            del self._held[sequence]
