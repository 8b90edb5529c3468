"""The catalogue's facts, the estimate of memory, and what is found on disk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from caldrix.models.catalogue import CATALOGUE, Entry
from caldrix.models.fit import DEFAULT_WINDOW, Shape, footprint
from caldrix.models.inventory import estimate, fits, inventory
from caldrix.models.refs import models_dir, parse
from tests.doubles.model_files import write_gguf

GIB = 1 << 30
# layers, heads, heads of keys and values, width of a head, width
DIMENSIONS = {
    "qwen2.5-coder-0.5b": (24, 14, 2, 64, 896),
    "qwen2.5-coder-1.5b": (28, 12, 2, 128, 1536),
    "qwen2.5-coder-3b": (36, 16, 2, 128, 2048),
    "qwen2.5-coder-7b": (28, 28, 4, 128, 3584),
    "qwen2.5-coder-14b": (48, 40, 8, 128, 5120),
    "qwen2.5-coder-32b": (64, 40, 8, 128, 5120),
}


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=list(CATALOGUE))
def test_an_entry_can_be_fetched_and_checked(entry: Entry) -> None:
    assert parse(entry.name) is entry and re.fullmatch(r"[a-z0-9.-]+", entry.name)
    assert entry.summary and entry.licence and entry.window
    assert (entry.repo and entry.file and entry.file.endswith(".gguf")) or entry.parts
    assert entry.sha256 is None or re.fullmatch("[0-9a-f]{64}", entry.sha256)
    assert entry.size is not None and entry.size > 50_000_000
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", part) for part in entry.parts)
    assert not entry.parts or entry.sha256  # anybody may upload to an index


@pytest.mark.parametrize("name", DIMENSIONS)
def test_the_estimate_is_near_the_formula(name: str) -> None:
    layers, heads, kv_heads, head, width = DIMENSIONS[name]
    size = CATALOGUE[name].size or 0
    exact = footprint(Shape(size, layers, heads, kv_heads, head, head, width, 152_000, 32_768), DEFAULT_WINDOW)
    assert 0.75 <= estimate(size) / exact <= 1.25


def test_a_model_fits_with_its_prefix_store() -> None:
    assert fits(3 * GIB, 4 * GIB) and not fits(3 * GIB + 1, 4 * GIB)
    assert fits(92 * GIB, 100 * GIB)  # the store takes 8 GiB at most


def test_the_last_that_fits_is_the_best() -> None:
    for limit in (GIB, 2 * GIB, 12 * GIB, 500 * GIB):
        rows = inventory(limit)
        assert [row.reference for row in rows] == list(CATALOGUE)
        best = [row for row in rows if row.best]
        assert best == [row for row in rows if row.fits][-1:]


def test_files_on_disk_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = models_dir() / "hf/org/Repo/deep"
    folder.mkdir(parents=True)
    coder = models_dir() / "hf/Qwen/Qwen2.5-Coder-7B-Instruct-GGUF/qwen2.5-coder-7b-instruct-q4_k_m.gguf"
    coder.parent.mkdir(parents=True)
    names = ("x-00001-of-00002.gguf", "x-00002-of-00002.gguf", "mmproj-x.gguf")
    for path in (*(folder / name for name in names), coder, models_dir() / "mine.gguf", models_dir() / "y.gguf.part"):
        write_gguf(path)
    rows = {row.reference: row for row in inventory(GIB)}
    assert rows["qwen2.5-coder-7b"].path == coder
    assert list(rows)[len(CATALOGUE) :] == [f"hf:org/Repo/deep/{names[0]}", str(models_dir() / "mine.gguf")]
    split, mine = rows[f"hf:org/Repo/deep/{names[0]}"], rows[str(models_dir() / "mine.gguf")]
    assert split.size and mine.size and split.size == 2 * mine.size
    assert mine.licence is None and not mine.best
