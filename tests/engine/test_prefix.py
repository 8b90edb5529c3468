"""The prefix store: longest prefix, least recently used by bytes, ids compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caldrix.engine.prefix import PrefixStore, as_ids, common_prefix

TOKENS = st.lists(st.integers(0, 3), max_size=12)


@given(TOKENS, TOKENS)
def test_common_prefix_is_the_longest(a: list[int], b: list[int]) -> None:
    length = common_prefix(as_ids(a), as_ids(b))
    assert a[:length] == b[:length]
    assert length == min(len(a), len(b)) or a[length] != b[length]


@given(st.lists(TOKENS, max_size=8), TOKENS)
def test_longest_is_the_best_of_all(stored: list[list[int]], wanted: list[int]) -> None:
    store = PrefixStore(1 << 20)
    for ids in stored:
        store.put(as_ids(ids), bytes(len(ids)))
    entry, length = store.longest(as_ids(wanted))
    assert length == max((common_prefix(as_ids(ids), as_ids(wanted)) for ids in stored), default=0)
    assert (entry is None) == (length == 0)


def test_least_recently_used_goes_first() -> None:
    store = PrefixStore(3 * 104)
    for first in (1, 2, 3):
        store.put(as_ids([first]), bytes(100))
    entry, _ = store.longest(as_ids([1, 9]))
    assert entry is not None
    store.touch(entry)
    store.put(as_ids([4]), bytes(100))
    assert [store.longest(as_ids([first]))[1] for first in (1, 2, 3, 4)] == [1, 0, 1, 1]
    assert store.evicted == 1 and store.size <= store.budget


@pytest.mark.parametrize(("budget", "entries"), [(0, 0), (103, 0), (104, 1)])
def test_the_budget_holds(budget: int, entries: int) -> None:
    store = PrefixStore(budget)
    store.put(as_ids([1]), bytes(100))
    assert store.entries == entries


def test_an_entry_that_a_new_one_extends_is_dropped() -> None:
    store = PrefixStore(1 << 20)
    store.put(as_ids([1, 2]), b"x")
    store.put(as_ids([1, 2, 3]), b"y")
    assert store.entries == 1 and store.covers(as_ids([1, 2]))


def test_whole_asks_for_entries_that_are_prefixes_themselves() -> None:
    store = PrefixStore(1 << 20)
    store.put(as_ids([1, 2, 9]), b"x")
    assert store.longest(as_ids([1, 2, 3]), whole=True) == (None, 0)
    store.put(as_ids([1, 2]), b"y")
    assert store.longest(as_ids([1, 2, 3]), whole=True)[1] == 2


def test_an_entry_too_large_to_keep_costs_no_other() -> None:
    store = PrefixStore(200)
    store.put(as_ids([1]), bytes(100))
    store.put(as_ids([1, 2]), bytes(400))
    assert store.entries == 1 and store.covers(as_ids([1]))
