"""The prefix store: snapshots of rows keyed by the token ids they hold. Least recently used go first, by bytes.

The ids themselves are compared, never a hash of them: a hit is a hit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


def as_ids(tokens: Sequence[int]) -> Ids:
    return np.asarray(tokens, dtype=np.int32)


def common_prefix(a: Ids, b: Ids) -> int:
    """How many leading tokens two sequences share."""
    length = min(a.size, b.size)
    different = np.flatnonzero(a[:length] != b[:length])
    return int(different[0]) if different.size else length


@dataclass(frozen=True, eq=False)
class Entry:
    ids: Ids
    snapshot: bytes

    @property
    def size(self) -> int:
        return len(self.snapshot) + self.ids.nbytes


class PrefixStore:
    """Entries in order of use, the least recent first. `budget` in bytes; 0 keeps none."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.evicted = 0
        self._entries: list[Entry] = []

    @property
    def entries(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return sum(entry.size for entry in self._entries)

    def longest(self, ids: Ids, *, whole: bool = False) -> tuple[Entry | None, int]:
        """The entry that shares the longest prefix with `ids`, and that length.

        `whole`: only entries that are a prefix themselves count (for models that cannot cut a sequence).
        """
        best: Entry | None = None
        length = 0
        for entry in self._entries:
            shared = common_prefix(entry.ids, ids)
            if shared > length and (not whole or shared == entry.ids.size < ids.size):
                best, length = entry, shared
        return best, length

    def touch(self, entry: Entry) -> None:
        """Mark an entry as the most recently used."""
        self._entries = [other for other in self._entries if other is not entry] + [entry]

    def drop(self, entry: Entry) -> None:
        """Forget an entry."""
        self._entries = [other for other in self._entries if other is not entry]

    def covers(self, ids: Ids) -> bool:
        """Does an entry hold all these rows already? It is then the most recently used."""
        entry, length = self.longest(ids)
        if entry is None or length < ids.size:
            return False
        self.touch(entry)
        return True

    def put(self, ids: Ids, snapshot: bytes) -> None:
        """Keep a snapshot; entries it extends are dropped, and the least recent ones until all fit the budget."""
        entry = Entry(ids, snapshot)
        if entry.size > self.budget:
            self.evicted += 1
            return
        self._entries = [other for other in self._entries if common_prefix(other.ids, ids) < other.ids.size]
        self._entries.append(entry)
        total = self.size
        while total > self.budget:
            total -= self._entries.pop(0).size
            self.evicted += 1
