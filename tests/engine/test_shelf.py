"""Prefixes on disk: whole or not at all, checked, private, one pool at a time."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from caldrix.engine.prefix import PrefixStore, as_ids
from caldrix.engine.shelf import SUFFIX, UNUSED_SECONDS, DiskShelf, identity
from caldrix.protocol.errors import Refused

ROWS = 16
BUDGET = 1 << 20


def rows_of(ids: list[int]) -> bytes:
    return b"".join(token.to_bytes(4, "little") for token in ids)


def fill(store: PrefixStore, ids: list[int]) -> None:
    store.put(as_ids(ids), lambda start, end: rows_of(ids[start:end]), 1)


def read(store: PrefixStore, ids: list[int]) -> list[int]:
    """The stored prefix of `ids`, put together from its parts."""
    path, length = store.longest(as_ids(ids))
    parts = store.read(path, length)
    assert parts is not None
    data = b"".join(part.data[: 4 * (part.end - part.start)] for part in parts)
    return [int.from_bytes(data[place : place + 4], "little") for place in range(0, len(data), 4)]


def opened(root: Path, budget: int = BUDGET) -> PrefixStore:
    return PrefixStore(budget, ROWS, DiskShelf(root, "model", budget))


def files(root: Path) -> list[Path]:
    return sorted((root / "model").glob(f"*{SUFFIX}"))


def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    one, other = list(range(50)), [*range(30), *range(900, 930)]
    store = opened(tmp_path)
    fill(store, one)
    fill(store, other)
    store.close()
    again = opened(tmp_path)
    assert again.size < 1000, "only ids are in memory until the rows are wanted"
    assert (read(again, one), read(again, other)) == (one, other)
    assert read(again, [*one[:20], 5, 5]) == one[:20]
    again.close()


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    store = opened(tmp_path / "new")
    fill(store, list(range(40)))
    store.close()
    paths = files(tmp_path / "new")
    assert paths and all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in paths)
    assert stat.S_IMODE(paths[0].parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "other", "header"])
def test_a_damaged_file_costs_a_prefill_and_no_more(tmp_path: Path, damage: str) -> None:
    ids = list(range(40))
    store = opened(tmp_path)
    fill(store, ids)
    store.close()
    for path in files(tmp_path):
        data = bytearray(path.read_bytes())
        match damage:
            case "cut":
                data = data[:-3]
            case "flip":
                data[-1] ^= 1
            case "empty":
                data = bytearray()
            case "other":
                data = bytearray(b"something else altogether, long enough")
            case "header":
                data[20] ^= 0xFF
        path.write_bytes(data)
    again = opened(tmp_path)
    path, length = again.longest(as_ids(ids))
    assert again.read(path, length) is None if path else length == 0
    assert again.longest(as_ids(ids))[1] == 0, "what is damaged is forgotten"
    fill(again, ids)
    assert read(again, ids) == ids
    again.close()


def test_a_file_under_another_name_is_not_taken_for_its_rows(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, list(range(16)))
    fill(store, list(range(100, 116)))
    store.close()
    one, other = files(tmp_path)
    other.write_bytes(one.read_bytes())
    again = opened(tmp_path)
    assert again.entries == 1
    again.close()


def test_a_piece_without_its_beginning_is_dropped(tmp_path: Path) -> None:
    store = opened(tmp_path)
    fill(store, list(range(48)))
    store.close()
    shelf = DiskShelf(tmp_path, "model", BUDGET)
    headers = list(shelf.headers())
    assert [header.start for header in headers] == [0, 16, 32]
    shelf.drop(headers[0].key)
    shelf.close()
    again = opened(tmp_path)
    assert again.entries == 0 and not files(tmp_path)
    again.close()


def test_the_folder_keeps_to_its_budget(tmp_path: Path) -> None:
    store = opened(tmp_path, 2000)
    for first in range(20):
        fill(store, list(range(1000 * first, 1000 * first + 32)))
    store.close()
    assert 0 < sum(path.stat().st_size for path in files(tmp_path)) <= 2000
    again = opened(tmp_path, 2000)
    assert read(again, list(range(19_000, 19_032))) == list(range(19_000, 19_032)), "the latest is the one that stays"
    again.close()


def test_one_pool_at_a_time(tmp_path: Path) -> None:
    first = DiskShelf(tmp_path, "model", BUDGET)
    with pytest.raises(Refused, match="another pool"):
        DiskShelf(tmp_path, "model", BUDGET)
    DiskShelf(tmp_path, "other model", BUDGET).close()
    first.close()
    DiskShelf(tmp_path, "model", BUDGET).close()


def test_folders_of_models_that_are_gone_are_swept(tmp_path: Path) -> None:
    old = PrefixStore(BUDGET, ROWS, DiskShelf(tmp_path, "old", BUDGET))
    fill(old, list(range(20)))
    old.close()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    long_ago = (tmp_path / "old").stat().st_mtime - UNUSED_SECONDS - 100
    for folder in ("old", "mine"):
        os.utime(tmp_path / folder, (long_ago, long_ago))
    DiskShelf(tmp_path, "new", BUDGET).close()
    assert not (tmp_path / "old").exists() and (tmp_path / "mine" / "notes.txt").exists()


def test_another_build_or_model_has_another_folder() -> None:
    assert identity("a", [("lib", 1, 2)], 256) != identity("a", [("lib", 1, 3)], 256)
    assert identity("a", 256) == identity("a", 256) != identity("b", 256)
