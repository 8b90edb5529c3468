"""read: numbers, pages, cuts, what is no text, and the names of S06."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerix_server.tools.names import escape_name, unescape_name
from aerix_server.tools.ripgrep import Bounds, Search, search_files

ODD_NAMES = [b"a b", b"n\nl", b"t\tx", b'"q"', "日本".encode(), b"bad\xff", b"-rf", b"$(x)", b"back\\slash", b"a\\nb"]


@pytest.mark.parametrize(
    ("content", "fields", "shown"),
    [
        pytest.param("a\nb\n", {}, "     1\ta\n     2\tb", id="whole"),
        pytest.param("a\nb", {}, "     1\ta\n     2\tb", id="no last newline"),
        pytest.param("a\r\nb\r\n", {}, "     1\ta\n     2\tb", id="CRLF"),
        pytest.param(b"\xef\xbb\xbfa\n", {}, "     1\ta", id="E03 mark not shown"),
        pytest.param("\ufeffé\n".encode("utf-16-be"), {}, "     1\té", id="UTF-16"),
        pytest.param("", {}, "[empty file]", id="empty"),
        pytest.param("\n\n", {}, "     1\t\n     2\t", id="empty lines"),
        pytest.param(
            "a\nb\nc\n", {"limit": 2}, "     1\ta\n     2\tb\n[lines 1-2 of 3; continue with offset=3]", id="more"
        ),
        pytest.param("a\nb\nc\n", {"offset": 2}, "     2\tb\n     3\tc\n[lines 2-3 of 3]", id="to the end"),
        pytest.param(
            b"caf\xe9\nok\n",
            {},
            "     1\tcaf\ufffd\n     2\tok\n[not valid UTF-8 at byte 3: such bytes are shown as \ufffd]",
            id="E04",
        ),
        pytest.param("a\x0cb\u2028c\x85d\re\nneedle\n", {"offset": 2}, "     2\tneedle\n[lines 2-2 of 2]", id="S04"),
    ],
)
async def test_a_page(bench, content, fields, shown):
    bench.put("f", content)
    assert await bench.text("read", path="f", **fields) == shown


async def test_the_default_page_is_200_lines(bench):
    bench.put("f", "".join(f"{number}\n" for number in range(1, 874)))
    text = await bench.text("read", path="f")
    assert text.endswith("   200\t200\n[lines 1-200 of 873; continue with offset=201]")
    assert await bench.error("read", path="f", offset=900) == "offset 900 is past the end: f has 873 lines"


async def test_a_long_line_is_cut_on_a_character(bench):
    bench.put("f", "é" * 2000 + "\n" + "é" * 2_500_000 + "\nlast\n")
    first, second, third = (await bench.text("read", path="f")).split("\n")
    assert first == "     1\t" + "é" * 2000
    assert second == "     2\t" + "é" * 2000 + "… [cut: the line has 5000000 bytes]"
    assert third == "     3\tlast"


async def test_a_page_of_too_many_bytes_ends_at_a_line(bench):
    bench.put("f", ("x" * 1999 + "\n") * 2000)
    *lines, tail = (await bench.text("read", path="f", limit=100_000)).split("\n")
    assert tail == f"[lines 1-{len(lines)} of 2000; continue with offset={len(lines) + 1}]"
    assert 500 < len(lines) < 540


async def test_characters_over_the_seam_of_two_pieces(bench):
    bench.put("f", "x" * (1024 * 1024 - 1) + "é\nlast\n")
    assert "not valid" not in await bench.text("read", path="f")
    bench.put("g", b"x" * (1024 * 1024 - 1) + b"\xc3\n")
    assert f"not valid UTF-8 at byte {1024 * 1024 - 1}" in await bench.text("read", path="g")
    bench.put("h", b"x" * (2 * 1024 * 1024) + b"\xc3")
    assert f"not valid UTF-8 at byte {2 * 1024 * 1024}" in await bench.text("read", path="h")


async def test_what_is_no_text(bench):
    bench.put("b", b"\x00\x01needle")
    bench.put("late", b"text\n" * 300_000 + b"\x00")
    os.mkfifo(bench.cwd / "pipe")
    assert await bench.error("read", path="b") == "b is binary (NUL near byte 0); it is not shown"
    assert "late is binary (NUL near byte 1500000)" in await bench.error("read", path="late")
    assert await bench.refusal("read", path="pipe") == "pipe is a named pipe; only plain files are read"


async def test_paths_that_are_not_there(bench):
    bench.put("src/config.py")
    (bench.cwd / "dangling").symlink_to("nowhere")
    assert await bench.error("read", path="src/confg.py") == "no such path: src/confg.py; near it: src/config.py"
    assert await bench.error("read", path="zzz/y") == "no such path: zzz/y"
    assert await bench.error("read", path="dangling") == "dangling is a link to nowhere, which does not exist"
    assert "spool entry gone" in await bench.error("read", path=str(bench.ctx.spool_dir / "7.txt"))
    assert await bench.error("read", path="src/config.py/x") == "cannot read src/config.py/x: Not a directory"


async def test_a_directory(bench):
    for name in ("b.txt", "a/x", "c d"):
        bench.put(name)
    (bench.cwd / "link").symlink_to("a")
    assert await bench.text("read", path=".") == "a/\nb.txt\nc d\nlink -> a"
    assert await bench.text("read", path=".", limit=2) == "a/\nb.txt\n[entries 1-2 of 4; continue with offset=3]"
    (bench.cwd / "empty").mkdir()
    assert await bench.text("read", path="empty") == "[empty directory]"


async def test_paths_may_leave_the_working_directory(bench):
    outside = bench.cwd.parent / "outside.txt"
    outside.write_text("far\n")
    assert await bench.text("read", path="../outside.txt") == "     1\tfar"
    assert await bench.text("read", path=str(outside)) == "     1\tfar"


async def test_unsaved_text_is_what_is_shown(bench):
    path = bench.put("f", "saved\n")
    bench.unsaved[path] = "unsaved\n"
    shown = await bench.text("read", path="f")
    assert shown == "     1\tunsaved\n[the unsaved text of the open editor is shown]"


@pytest.mark.parametrize("raw", ODD_NAMES)
async def test_every_listed_name_is_taken_back(repository, raw):
    """S06: what read, glob and grep show as a name, read takes."""
    Path(os.fsdecode(os.path.join(os.fsencode(repository.cwd), raw))).write_text("needle\n")
    listed = [
        await repository.text("read", path="."),
        await repository.text("glob", pattern="*"),
        (await repository.text("grep", pattern="needle")).removesuffix(":1:needle"),
    ]
    (names,) = {text.replace(".git/\n", "").replace("\n.git/", "") for text in listed}
    assert "\n" not in names
    assert await repository.text("read", path=names) == "     1\tneedle"
    assert await repository.text("glob", pattern=names) == names


@given(st.binary(min_size=1, max_size=20).filter(lambda raw: b"\0" not in raw))
def test_escaping_a_name_goes_both_ways(raw):
    shown = escape_name(os.fsdecode(raw))
    assert shown.isprintable()
    name = unescape_name(shown)
    assert name is not None
    assert os.fsencode(name) == raw


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(text=st.text(st.sampled_from("ab\r\n\x0b\x0c\x1c\x85\u2028é\ufeff"), max_size=40))
async def test_numbers_are_those_of_grep(bench, text):
    """S04: over any text, read and grep agree on which line is which."""
    bench.put("f.txt", text)
    page = await bench.text("read", path="f.txt")
    numbered = {
        int(found[1]): found[2]
        for line in page.split("\n")
        if (found := re.fullmatch(r" *(\d+)\t(.*)", line, re.DOTALL))
    }
    found = await bench.text("grep", pattern="a", path="f.txt")
    for line in found.split("\n"):
        if hit := re.fullmatch(r"f\.txt:(\d+):(.*)", line, re.DOTALL):
            assert numbered[int(hit[1])] == hit[2]
    assert found.count("f.txt:") == sum("a" in line for line in numbered.values())


def test_a_search_of_a_file_named_like_an_option():
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "--version").write_text("needle\n")
        search = Search()
        search_files("needle", Path(folder), ["--version"], search, Bounds(10, float("inf"), lambda: False))
        assert [(match.name, match.line) for match in search.matches] == [("--version", 1)]
