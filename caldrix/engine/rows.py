"""The live sequence joined to the prefix store: which rows stand, and how a prompt's rows come to stand."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Literal

from caldrix.engine.backend import MIN_PASS_ROWS, Backend, EngineFailed, Logits
from caldrix.engine.prefix import Entry, PrefixStore, as_ids, common_prefix
from caldrix.engine.rates import Rates

log = logging.getLogger(__name__)

WORTH_SAVING_ROWS = 16
"""Fewer rows than this are computed again faster than a snapshot pays for its bytes."""


class Rows:
    """Owned by the engine thread; knows the ids whose rows stand in the backend."""

    def __init__(self, backend: Backend, store: PrefixStore) -> None:
        self._backend = backend
        self._live: list[int] = []
        self.store = store
        self.rates = Rates()
        self.hits = 0
        self.misses = 0
        self.can_cut = True

    @property
    def count(self) -> int:
        return len(self._live)

    def resume(self, ids: Sequence[int]) -> int:
        """Make the longest known prefix of `ids` stand, MIN_PASS_ROWS short of their end at most. Gives its length."""
        wanted = as_ids(ids)
        live = as_ids(self._live)
        shared = common_prefix(live, wanted)
        if not self.can_cut and shared < live.size:
            shared = 0
        entry, stored = self.store.longest(wanted, whole=not self.can_cut)
        if entry is not None and stored > shared:
            self.store.touch(entry)  # before the live rows are saved, which may evict the least recent
        else:
            entry = None
        if shared < live.size:
            self._save()
        if entry is not None:
            shared = stored if self._load(entry) else 0
        start = self._cut(max(0, min(shared, wanted.size - MIN_PASS_ROWS)))
        if start:
            self.hits += 1
        else:
            self.misses += 1
        return start

    def fill(self, ids: Sequence[int]) -> Iterator[tuple[int, Logits | None]]:
        """Compute the rows of `ids` that do not stand yet, in passes of about a second.

        Yields after each pass how many rows stand, and with the last one the logits of the last row. A caller that
        stops early leaves the rows of the passes done.
        """
        while self.count < len(ids):
            size = self.rates.chunk(len(ids) - self.count)
            tokens = ids[self.count : self.count + size]
            last = self.count + len(tokens) == len(ids)
            logits = self.extend(tokens, "last" if last else "none")
            yield self.count, logits if last else None

    def extend(self, tokens: Sequence[int], want: Literal["none", "last", "all"]) -> Logits:
        """Compute rows for `tokens` after the live ones."""
        started = time.perf_counter()
        try:
            logits = self._backend.eval(tokens, self.count, want)
        except BaseException:
            self.forget()
            raise
        self.rates.note(len(tokens), time.perf_counter() - started)
        self._live.extend(tokens)
        return logits

    def passes(self, tokens: Sequence[int], limit: int) -> Iterator[Sequence[int]]:
        """`tokens` cut into runs of about a second each, and of at most `limit`."""
        start = 0
        while start < len(tokens):
            end = start + min(limit, self.rates.chunk(len(tokens) - start))
            yield tokens[start:end]
            start = end

    def branches(self, branches: Sequence[Sequence[int]]) -> Iterator[tuple[int, Logits]]:
        """Logits of every row of each branch after the live rows, which stay as they are; see Backend.branches."""
        try:
            yield from self._backend.branches(branches, self.count)
        except EngineFailed:
            self.forget()
            raise

    def forget(self) -> None:
        """Empty the live sequence, as after a failure."""
        self._backend.clear()
        self._live = []

    def _load(self, entry: Entry) -> bool:
        """Make a stored prefix live; one that cannot be loaded is dropped and costs a prefill, never a refusal."""
        try:
            self._backend.load(entry.snapshot)
        except EngineFailed as error:
            log.warning("a stored prefix was dropped: %s", error)
            self.store.drop(entry)
            self.forget()
            return False
        self._live = [int(token) for token in entry.ids]
        return True

    def _cut(self, rows: int) -> int:
        if rows == self.count:
            return rows
        if rows and self.can_cut and self._backend.keep(rows):
            del self._live[rows:]
            return rows
        if rows:
            self.can_cut = False
        self.forget()
        return 0

    def _save(self) -> None:
        if self.count < WORTH_SAVING_ROWS or not self.store.budget or self.store.covers(as_ids(self._live)):
            return
        self.store.put(as_ids(self._live), self._backend.save())
