"""The prefix store: what was put comes back as it was, what prompts share is kept once, and the budgets hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from caldrix.engine.prefix import Header, Ids, PrefixStore, as_ids, common_prefix, piece_key

PIECE = 4
FAMILY = st.lists(st.integers(0, 1), max_size=14)
"""Two tokens only, so that most sequences share a beginning."""


def saver(ids: list[int]) -> Callable[[int, int], bytes]:
    """Rows that tell which ids they stand for: four bytes each, as the ids themselves."""
    return lambda start, end: as_ids(ids[start:end]).tobytes()


def whole_saver(ids: list[int]) -> Callable[[int, int], bytes]:
    return lambda start, end: as_ids(ids).tobytes()


def put(store: PrefixStore, ids: list[int], worth: int = 1) -> None:
    store.put(as_ids(ids), saver(ids), worth)


def rows(store: PrefixStore, ids: list[int]) -> list[int] | None:
    """The ids that the longest stored prefix's parts stand for; None when some of it is gone."""
    path, length = store.longest(as_ids(ids))
    parts = store.read(path, length) if path else []
    if parts is None:
        return None
    found: list[int] = []
    for part in parts:
        assert part.start == len(found) < part.end
        found += np.frombuffer(part.data, np.int32)[: part.end - part.start].tolist()
    assert len(found) == length
    return found


class ToyShelf:
    """A shelf in memory, that can lose what it keeps."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.kept: dict[str, tuple[Header, bytes]] = {}
        self.closed = False

    def write(self, key: str, parent: str, start: int, ids: Ids, data: bytes) -> int:
        size = len(data) + 10
        self.kept[key] = Header(key, parent, start, ids, size, len(self.kept)), data
        return size

    def read(self, key: str) -> bytes | None:
        entry = self.kept.get(key)
        return entry[1] if entry else None

    def drop(self, key: str) -> None:
        self.kept.pop(key, None)

    def headers(self) -> Iterator[Header]:
        return iter([header for header, _ in self.kept.values()])

    def close(self) -> None:
        self.closed = True

    @property
    def size(self) -> int:
        return sum(header.size for header, _ in self.kept.values())


@given(FAMILY, FAMILY)
def test_common_prefix_is_the_longest(a: list[int], b: list[int]) -> None:
    length = common_prefix(as_ids(a), as_ids(b))
    assert a[:length] == b[:length]
    assert length == min(len(a), len(b)) or a[length] != b[length]


@given(st.lists(FAMILY, max_size=8), FAMILY, st.integers(1, 5))
def test_longest_is_the_best_of_all_and_gives_its_rows(stored: list[list[int]], wanted: list[int], size: int) -> None:
    store = PrefixStore(1 << 20, size)
    for ids in stored:
        put(store, ids)
    best = max((common_prefix(as_ids(ids), as_ids(wanted)) for ids in stored), default=0)
    assert rows(store, wanted) == wanted[:best]


@given(st.lists(FAMILY, max_size=8), st.integers(1, 5))
def test_what_is_shared_is_kept_once(stored: list[list[int]], size: int) -> None:
    """Bytes are those of the tree of all sequences: each distinct prefix is one row."""
    store = PrefixStore(1 << 20, size)
    for ids in stored:
        put(store, ids)
    distinct = {tuple(ids[:end]) for ids in stored for end in range(1, len(ids) + 1)}
    assert store.size == len(distinct) * 8, "four bytes of rows and four of the id"


@given(st.lists(st.lists(st.integers(0, 1), max_size=6), max_size=8), st.lists(st.integers(0, 1), max_size=8))
def test_whole_states_serve_only_what_they_begin(stored: list[list[int]], wanted: list[int]) -> None:
    store = PrefixStore(1 << 20, 0)
    for ids in stored:
        store.put(as_ids(ids), whole_saver(ids), 1)
    best = max((ids for ids in stored if wanted[: len(ids)] == ids), key=len, default=[])
    path, length = store.longest(as_ids(wanted))
    assert length == len(best) and len(path) == bool(best)
    assert not path or [part.data for part in store.read(path, length) or []] == [as_ids(best).tobytes()]
    assert store.branching(as_ids(wanted)) == max(
        (common_prefix(as_ids(ids), as_ids(wanted)) for ids in stored), default=0
    )


class StoreWithShelf(RuleBasedStateMachine):
    """Any order of putting, reading, forgetting, losing pieces on the disk, and starting again."""

    piece_rows = PIECE

    def __init__(self) -> None:
        super().__init__()
        self.shelf = ToyShelf(150)
        self.store = PrefixStore(120, self.piece_rows, self.shelf)

    @rule(ids=FAMILY, worth=st.integers(0, 4))
    def put(self, ids: list[int], worth: int) -> None:
        put(self.store, ids, worth)
        self.budget_holds()

    @rule(ids=FAMILY)
    def read(self, ids: list[int]) -> None:
        found = rows(self.store, ids)
        assert found is None or found == ids[: len(found)]
        self.budget_holds()

    @rule(ids=FAMILY)
    def forget(self, ids: list[int]) -> None:
        path, length = self.store.longest(as_ids(ids))
        if path:
            self.store.forget(path[-1])
            assert self.store.longest(as_ids(ids))[1] < length

    @rule(place=st.integers(0, 20))
    def lose(self, place: int) -> None:
        if self.shelf.kept:
            self.shelf.kept.pop([*self.shelf.kept][place % len(self.shelf.kept)])

    @rule()
    def start_again(self) -> None:
        self.store.close()
        assert self.shelf.closed
        self.store = PrefixStore(120, self.piece_rows, self.shelf)

    def budget_holds(self) -> None:
        """Tokens of pieces that only the shelf has stay in memory, and are no reason to forget them."""
        tokens = sum(piece.ids.nbytes for piece in self.store._pieces.values() if piece.data is None)
        assert self.store.size <= max(self.store.budget, tokens)

    @invariant()
    def books_balance(self) -> None:
        pieces = self.store._pieces.values()
        assert self.store.size == sum(piece.size for piece in pieces)
        assert self.store._shelved == sum(piece.shelved for piece in pieces) <= self.shelf.budget
        assert self.shelf.kept.keys() <= {piece.key for piece in pieces if piece.shelved}
        for piece in pieces:
            assert piece.data is not None or piece.shelved
            siblings = piece.parent.children if piece.parent else self.store._roots
            assert siblings.count(piece) == 1
            assert piece.parent is None or piece.parent.start < piece.start <= piece.parent.end


StoreWithShelf.TestCase.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
test_a_store_with_a_shelf = StoreWithShelf.TestCase


@given(st.lists(FAMILY, max_size=10), st.integers(0, 100), st.sampled_from([0, 1, PIECE]))
def test_the_budget_holds_after_every_put(stored: list[list[int]], budget: int, size: int) -> None:
    store = PrefixStore(budget, size)
    for ids in stored:
        store.put(as_ids(ids), saver(ids) if size else whole_saver(ids), 1)
        assert store.size <= budget
        assert store.size == sum(piece.size for piece in store._pieces.values())


def test_least_recently_used_goes_first() -> None:
    store = PrefixStore(3 * 8, PIECE)
    for first in (1, 2, 3):
        put(store, [first])
    assert rows(store, [1, 9]) == [1]
    put(store, [4])
    assert [store.longest(as_ids([first]))[1] for first in (1, 2, 3, 4)] == [1, 0, 1, 1]
    assert store.evicted == 1


def test_an_end_goes_before_what_it_hangs_on() -> None:
    store = PrefixStore(8 * 8, PIECE)
    put(store, [1, 1, 1, 1, 2, 2, 2, 2])
    put(store, [3, 3, 3, 3])
    assert [store.longest(as_ids(ids))[1] for ids in ([1, 1, 1, 1, 2], [3] * 4)] == [4, 4]


def test_a_use_of_the_end_is_a_use_of_the_beginning() -> None:
    store = PrefixStore(8 * 8, PIECE)
    put(store, [1, 1, 1, 1])
    put(store, [3, 3, 3, 3])
    assert rows(store, [1, 1]) == [1, 1]
    put(store, [4])
    assert [store.longest(as_ids(ids))[1] for ids in ([1] * 4, [3] * 4, [4])] == [4, 0, 1]


@pytest.mark.parametrize(("budget", "entries"), [(0, 0), (7, 0), (8, 1)])
def test_a_budget_to_the_byte(budget: int, entries: int) -> None:
    store = PrefixStore(budget, PIECE)
    put(store, [1])
    assert store.entries == entries


def test_few_new_rows_are_not_worth_it_and_cost_nothing_that_is_kept() -> None:
    store = PrefixStore(1 << 20, 8)
    put(store, [1] * 10, 4)
    for length in (11, 12, 13):
        put(store, [1] * length, 4)
        assert store.longest(as_ids([1] * 20))[1] == 10
    put(store, [1] * 14, 4)
    assert store.longest(as_ids([1] * 20))[1] == 14 and store.entries == 2


def test_a_short_end_grows_into_one_piece() -> None:
    store = PrefixStore(1 << 20, 8)
    for length in range(1, 17):
        put(store, [7] * length)
    assert store.entries == 2 and store.size == 16 * 8


def test_a_short_end_that_others_hang_on_stays() -> None:
    store = PrefixStore(1 << 20, 8)
    put(store, [1, 1])
    put(store, [1, 1, 2])
    put(store, [1, 3])
    put(store, [1, 1, 4])
    assert [rows(store, ids) for ids in ([1, 1, 2], [1, 3], [1, 1, 4])] == [[1, 1, 2], [1, 3], [1, 1, 4]]


def test_forgetting_takes_all_that_hang_on_it() -> None:
    shelf = ToyShelf(1 << 20)
    store = PrefixStore(1 << 20, PIECE, shelf)
    put(store, [1] * 4 + [2] * 4)
    put(store, [1] * 4 + [3] * 4)
    store.forget(store.longest(as_ids([1]))[0][0])
    assert (store.size, store.entries, shelf.kept) == (0, 0, {})


def test_a_full_memory_leaves_pieces_on_the_shelf() -> None:
    shelf = ToyShelf(1 << 20)
    store = PrefixStore(100, PIECE, shelf)
    sequences = [[number] * 12 for number in range(6)]
    for ids in sequences:
        put(store, ids)
    assert all(rows(store, ids) == ids for ids in sequences) and store.evicted > 0


def test_a_piece_that_the_shelf_lost_is_forgotten() -> None:
    shelf = ToyShelf(1 << 20)
    put(PrefixStore(1 << 20, PIECE, shelf), [1] * 12)
    store = PrefixStore(1 << 20, PIECE, shelf)
    middle = store.longest(as_ids([1] * 12))[0][1]
    shelf.drop(middle.key)
    assert rows(store, [1] * 12) is None
    assert rows(store, [1] * 12) == [1] * 4
    assert shelf.kept.keys() == {piece_key("", 0, as_ids([1] * 4))}


def test_a_start_drops_what_hangs_on_nothing() -> None:
    shelf = ToyShelf(1 << 20)
    put(PrefixStore(1 << 20, PIECE, shelf), [1] * 8)
    shelf.drop(piece_key("", 0, as_ids([1] * 4)))
    store = PrefixStore(1 << 20, PIECE, shelf)
    assert (store.entries, shelf.kept) == (0, {})


@given(st.lists(FAMILY, min_size=1, max_size=6), FAMILY)
def test_a_restart_finds_what_was_kept(stored: list[list[int]], wanted: list[int]) -> None:
    shelf = ToyShelf(1 << 20)
    store = PrefixStore(1 << 20, PIECE, shelf)
    for ids in stored:
        put(store, ids)
    again = PrefixStore(1 << 20, PIECE, shelf)
    assert rows(again, wanted) == rows(store, wanted)
    assert again.entries == store.entries


@given(FAMILY, FAMILY, st.integers(0, 9))
def test_keys_stand_for_the_whole_prefix(a: list[int], b: list[int], start: int) -> None:
    assume(a != b)
    assert piece_key("", start, as_ids(a)) != piece_key("", start, as_ids(b))
    assert piece_key("x", start, as_ids(a)) != piece_key("y", start, as_ids(a))
