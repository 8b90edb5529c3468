"""Whether a GGUF file is whole, told by its header."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caldrix.models.gguf_file import check_gguf
from caldrix.protocol.errors import Refused
from tests.doubles.model_files import write_gguf


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "x.gguf")


def refusal(path: Path, data: bytes) -> Refused:
    path.write_bytes(data)
    with pytest.raises(Refused) as refused:
        check_gguf(path)
    assert refused.value.code == "model_refused" and str(path) in refused.value.message
    return refused.value


def test_a_whole_file_is_sound(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(whole)
    check_gguf(path)
    path.write_bytes(whole + b"more")
    check_gguf(path)


def test_a_cut_file_is_refused_with_both_numbers(tmp_path: Path, whole: bytes) -> None:
    refused = refusal(tmp_path / "x.gguf", whole[:-100])
    detail = refused.detail or {}
    assert detail["size_bytes"] == len(whole) - 100
    assert len(whole) - 32 <= detail["needed_bytes"] <= len(whole)  # the file may end with padding
    assert str(detail["needed_bytes"]) in refused.message and str(len(whole) - 100) in refused.message


@given(data=st.data())
def test_no_cut_file_is_sound(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, whole: bytes) -> None:
    length = data.draw(st.integers(0, len(whole) - 33))
    refusal(tmp_path_factory.mktemp("cut") / "x.gguf", whole[:length])


@given(data=st.data())
def test_a_damaged_header_is_refused_or_sound(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, whole: bytes
) -> None:
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, 300))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "x.gguf"
    path.write_bytes(damaged)
    try:
        check_gguf(path)
    except Refused as refused:
        assert refused.code == "model_refused"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not a GGUF file (it begins with b'')"),
        (b"PK\x03\x04zip", "is not a GGUF file (it begins with b'PK\\x03\\x04')"),
        (b"GGUF", "its header alone needs more than 4 bytes"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "it is of version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 40), "a name in it is 1099511627776 bytes"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 99), "the unknown type 99"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 0) + struct.pack("<I", 99), "99 dimensions"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "its header alone needs more than 24 bytes"),
    ],
)
def test_what_is_no_gguf_is_named(tmp_path: Path, data: bytes, said: str) -> None:
    assert said in refusal(tmp_path / "x.gguf", data).message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be read: No such file") as refused:
        check_gguf(tmp_path / "none.gguf")
    assert refused.value.code == "model_refused"
