"""How long results are cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerix_server.config.settings import ToolCaps
from aerix_server.runtime.caps import byte_length, cap_of, cut, speakable
from aerix_server.runtime.spool import Spool


@pytest.mark.parametrize(
    ("text", "limit", "kept", "status", "more"),
    [
        ("abcdef", 4, "abcd", "", 2),
        ("ééé", 3, "é", "", 4),
        ("a😀b", 4, "a", "", 5),
        ("abc", 0, "", "", 3),
        ("line\n" * 4 + "[exit 1]", 15, "line\nli", "[exit 1]", 13),
        ("x" * 50 + "\n[timeout after 2s]\n", 30, "x" * 12, "[timeout after 2s]", 40),
        ("x[exit 1]", 6, "x[exit", "", 3),
    ],
)
def test_cut(text: str, limit: int, kept: str, status: str, more: int) -> None:
    if text.startswith("x[exit"):
        text = "x[exit 1]y"
        more = 4
    done = cut(text, limit)
    assert (done.kept, done.status, done.more) == (kept, status, more)


def test_the_pointer_line_is_exact_and_last() -> None:
    text = "a" * 20 + "\n[exit 3]"
    assert (
        cut(text, 15).render("/s/1.txt")
        == 'aaaaaaa\n[exit 3]\n[truncated: 14 more bytes; read with read(path="/s/1.txt", offset=1)]'
    )
    assert cut(text, 0).render("/s/1.txt").splitlines()[-1].startswith("[truncated: 21 more bytes; ")


@given(st.text(max_size=60), st.integers(0, 80))
def test_nothing_is_lost_uncounted(text: str, limit: int) -> None:
    text = speakable(text)
    done = cut(text, limit)
    assert text.startswith(done.kept)
    assert byte_length(done.kept) + byte_length(done.status) + done.more == byte_length(text)
    assert byte_length(done.kept) + byte_length(done.status) <= max(limit, byte_length(done.status))


def test_a_file_that_holds_more_counts() -> None:
    assert cut("abcdef", 4, whole_bytes=1000).more == 996


def test_caps_by_tool() -> None:
    caps = ToolCaps(read=300)
    assert (cap_of(caps, "read"), cap_of(caps, "bash"), cap_of(caps, "write"), cap_of(caps, "model_config")) == (
        300,
        12_000,
        None,
        None,
    )


def test_odd_file_names_can_be_told() -> None:
    assert speakable("bad\udcff <|im_end|> é") == "bad\\udcff <|im_end|> é"


async def test_the_spool_writes_each_text_once_under_the_next_number(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "x.spool")
    first = await spool.keep("one\r\n")
    (tmp_path / "x.spool" / "7.txt").write_text("another's")
    second = await spool.keep("two")
    assert (first.name, second.name) == ("1.txt", "8.txt")
    assert first.read_bytes() == b"one\r\n" and first.stat().st_mode & 0o777 == 0o600
