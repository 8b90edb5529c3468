"""edit: pitfalls E01 to E12, and that nothing outside the replaced text ever changes."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerix_server.tools.base import ToolError
from aerix_server.tools.replacing import replace
from aerix_server.tools.text import NotText, decode, encode

LATIN = b"const x = 1;\n// caf\xe9\n"
GBK = b"const x = 1;\n// \xd6\xd0\xce\xc4\n"
MARKED = b"\xef\xbb\xbfhello\r\n\xe4\xb8\xad\r\n"
UTF16 = "\ufeffone\r\ntwo\r\n".encode("utf-16-le")


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        pytest.param(b"x = 1\n", "x = 1", "x = 2", b"x = 2\n", id="plain"),
        pytest.param(b"a\r\nb\r\nc", "a\nb", "A\nB\nX", b"A\r\nB\r\nX\r\nc", id="E01 LF search"),
        pytest.param(b"a\r\nb\r\nc", "a\r\nb", "A\r\nB\r\nX", b"A\r\nB\r\nX\r\nc", id="E01 CRLF search"),
        pytest.param(b"a\nb\nc", "a\r\nb", "A\r\nB", b"A\nB\nc", id="E01 CRLF search in LF"),
        pytest.param(b"foo\r\nbar\r\n", "foo", "FOO", b"FOO\r\nbar\r\n", id="E02 one word"),
        pytest.param(b"a\r\nb\nc\r\n", "b", "B", b"a\r\nB\nc\r\n", id="E02 mixed"),
        pytest.param(b"a\r\nb\nc\r\n", "a\nb\nc", "a\nnew\nc", b"a\r\nnew\nc\r\n", id="E02 mixed, own endings"),
        pytest.param(b"a\r\nb\nc\r\n", "a\nb\nc", "a\nc", b"a\r\nc\r\n", id="E02 mixed, line removed"),
        pytest.param(b"a\nb\r\nc\r\n", "b", "b\nx", b"a\nb\r\nx\r\nc\r\n", id="E02 new line as its neighbour"),
        pytest.param(MARKED, "hello", "hello2", MARKED.replace(b"hello", b"hello2"), id="E03 mark kept"),
        pytest.param(MARKED, "\ufeffhello", "bye", MARKED.replace(b"hello", b"bye"), id="E03 mark in the search"),
        pytest.param(b"hello\n", "hello", "bye", b"bye\n", id="E03 none added"),
        pytest.param(LATIN, "x = 1", "x = 2", LATIN.replace(b"x = 1", b"x = 2"), id="E04 latin-1"),
        pytest.param(GBK, "x = 1", "x = 2", GBK.replace(b"x = 1", b"x = 2"), id="E04 GBK"),
        pytest.param(UTF16, "two", "né", UTF16.replace("two".encode("utf-16-le"), "né".encode("utf-16-le")), id="E04"),
        pytest.param(b'{"a":1}', "1", "2", b'{"a":2}', id="E05 no newline"),
        pytest.param(b"a\r\nb", "b", "b\nc", b"a\r\nb\r\nc", id="E05 line appended"),
        pytest.param(b"one", "one", "one\r\ntwo", b"one\r\ntwo", id="no ending known"),
        pytest.param(
            b'log("done");',
            'log("done");',
            'log("$& $1 $$ \\1 \\g<0> \\n-literal");',
            b'log("$& $1 $$ \\1 \\g<0> \\n-literal");',
            id="E06",
        ),
    ],
)
@pytest.mark.parametrize("replace_all", [False, True])
async def test_the_bytes_after_an_edit(bench, before, old, new, after, replace_all):
    path = bench.put("f.txt", before)
    output = await bench.call("edit", path="f.txt", old=old, new=new, replace_all=replace_all)
    assert path.read_bytes() == after
    assert output.touched == ("f.txt",)
    assert output.text.startswith("edited f.txt: 1 replacement at line ")


async def test_every_match_is_replaced_once_from_left_to_right(bench):
    """E12: matches that overlap."""
    path = bench.put("f", b"aaa\r\naa\r\n")
    assert await bench.text("edit", path="f", old="aa", new="b", replace_all=True) == (
        "edited f: 2 replacements at lines 1, 2; inside longer words at line 1, is that meant?"
    )
    assert path.read_bytes() == b"ba\r\nb\r\n"


@pytest.mark.parametrize(
    ("content", "old", "new", "told"),
    [
        pytest.param("x\n", "", "y", "old is empty", id="E12 empty old"),
        pytest.param("", "", "y", "old is empty", id="E12 empty old, empty file"),
        pytest.param("x\n", "x", "x", "old and new are the same", id="E12 same"),
        pytest.param("a\nb\n", "a\nb", "a\r\nb", "line endings only", id="no-op by endings"),
        pytest.param("x\ny\nx\n", "x", "z", "found 2 times in f (lines 1, 3)", id="repeated"),
        pytest.param("x\n", "z", "y", "old was not found in f", id="missing"),
        pytest.param("def total(items):\n", "def totals(items):", "y", "     1\tdef total(items):", id="nearest"),
        pytest.param("if a:\n b =  1\n", "if a:\n    b = 1", "y", "lines 1-2 differ in spaces only", id="spaces"),
        pytest.param("a\nb\n", "     1\ta\n     2\tc", "y", "begins with line numbers", id="numbers"),
        pytest.param("a\rb\rc", "x-long\ny-long", "z", "2 carriage returns alone, which end no line", id="E01 CR"),
        pytest.param("x = 22222222\n", "x = 1", "x = 22222222", "new is there already, at line 1", id="done before"),
        pytest.param("x\n", "x", "\ud800", "half of a surrogate pair", id="surrogate"),
        pytest.param(b"\x00\x01x", "x", "y", "f is binary (NUL at byte 0", id="S03 binary"),
        pytest.param(LATIN, "1", "\ufffd", "not valid UTF-8 at byte 19", id="E04 replacement character"),
        pytest.param(LATIN, "caf\ufffd", "x", "old was not found", id="E04 shown, not there"),
    ],
)
async def test_what_is_not_edited(bench, content, old, new, told):
    path = bench.put("f", content)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    assert told in await bench.error("edit", path="f", old=old, new=new)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


async def test_the_nearest_of_many_alike_lines_is_found_in_time(bench):
    """Twenty thousand long lines of the same letters: a comparison of each in full would take a minute."""
    letters = "abcdefgh " * 20
    lines = [letters[at % 180 :] + letters[: at % 180] for at in range(20_000)]
    lines[7000] = letters + "needle"
    bench.put("f", "\n".join(lines))
    started = time.monotonic()
    assert f"  7001\t{letters}needle" in await bench.error("edit", path="f", old=letters + "needles", new="x")
    assert time.monotonic() - started < 6


async def test_a_missing_file_and_a_directory(bench):
    bench.put("src/app.py", "x")
    assert (
        await bench.error("edit", path="src/ap.py", old="", new="y") == "no such path: src/ap.py; near it: src/app.py"
    )
    assert await bench.error("edit", path="src", old="x", new="y") == "src is a directory"
    assert "a part of its path is a file" in await bench.error("edit", path="src/app.py/x", old="x", new="y")


async def test_a_link_stays_one(bench):
    """E07: also through linked directories, with a relative link at the end."""
    host = bench.put("real/host/placeholder").parent
    (bench.cwd / "real/settings.json").write_text("old")
    (host / "settings.json").symlink_to("../settings.json")
    (bench.cwd / "synced").symlink_to("real/host")
    (bench.cwd / "dot").symlink_to("synced")
    told = await bench.call("edit", path="dot/settings.json", old="old", new="new")
    assert (host / "settings.json").is_symlink()
    assert (bench.cwd / "real/settings.json").read_text() == "new"
    assert told.text == "edited dot/settings.json (a link to real/settings.json): 1 replacement at line 1"
    assert told.touched == ("real/settings.json",)


async def test_two_edits_of_one_file_both_land(bench):
    """E09."""
    path = bench.put("f", "one\ntwo\n")
    await bench.text("read", path="f")
    await bench.text("edit", path="f", old="one", new="1")
    assert await bench.text("edit", path="f", old="two", new="2") == "edited f: 1 replacement at line 2"
    assert path.read_text() == "1\n2\n"


async def test_an_edit_after_a_change_by_another_says_so(bench):
    """E09."""
    path = bench.put("f", "one\ntwo\n")
    await bench.text("read", path="f")
    path.write_text("zero\none\ntwo\n")
    told = await bench.text("edit", path="f", old="two", new="2")
    assert told == "edited f: 1 replacement at line 3 (the file had changed since you read it)"
    assert path.read_text() == "zero\none\n2\n"


async def test_mode_and_hard_links_are_kept(bench):
    path = bench.put("run.sh", "echo 1\n")
    path.chmod(0o755)
    os.link(path, bench.cwd / "again")
    await bench.text("edit", path="run.sh", old="1", new="2")
    assert (bench.cwd / "again").read_text() == "echo 2\n"
    assert path.stat().st_mode & 0o7777 == 0o755
    assert path.samefile(bench.cwd / "again")


async def test_unsaved_text_of_an_editor_is_not_run_over(bench):
    path = bench.put("f", "one\n")
    bench.unsaved[path] = "one and more\n"
    assert "unsaved changes in the editor" in await bench.refusal("edit", path="f", old="one", new="1")
    bench.unsaved[path] = "one\n"
    assert await bench.text("edit", path="f", old="one", new="1") == "edited f: 1 replacement at line 1"


async def test_a_search_in_a_large_line_is_quick(bench):
    path = bench.put("f", "x" * 5_000_000 + "needle" + "x" * 10)
    assert "replacement at line 1" in await bench.text("edit", path="f", old="needle", new="\n", replace_all=True)
    assert path.read_bytes().count(b"\n") == 1


ending = st.sampled_from(["\n", "\r\n"])
line = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=6)
lines = st.lists(st.tuples(line, ending), min_size=1, max_size=12)


@given(lines=lines, data=st.data(), new_lines=st.lists(line, min_size=1, max_size=4))
def test_lines_outside_the_replaced_ones_are_untouched(lines, data, new_lines):
    first = data.draw(st.integers(0, len(lines) - 1))
    last = data.draw(st.integers(first, len(lines) - 1))
    head, span, tail = lines[:first], lines[first : last + 1], lines[last + 1 :]
    original = "".join(text + end for text, end in lines)
    old = "\n".join(text for text, _ in span) + "\n"
    new = "\n".join(new_lines) + "\n"
    try:
        result = replace(original, old, new, False, "f").text
    except ToolError:
        return
    kept_head = "".join(text + end for text, end in head)
    kept_tail = "".join(text + end for text, end in tail)
    if original.replace("\r\n", "\n").find(old) == len(kept_head.replace("\r\n", "\n")):
        assert result.startswith(kept_head)
        assert result.endswith(kept_tail)
        middle = result[len(kept_head) : len(result) - len(kept_tail)]
        assert middle.replace("\r\n", "\n") == new
    if len({end for _, end in lines}) == 1:
        assert result.count("\r\n") == (result.count("\n") if lines[0][1] == "\r\n" else 0)


one_line = st.text(st.characters(codec="ascii", exclude_characters="\r\n"), max_size=8)


@given(before=st.binary(max_size=20), after=st.binary(max_size=20), new=one_line)
def test_bytes_around_a_match_stay(before, after, new):
    body = b"\x7f" + before + b"@@old@@" + after
    try:
        file = decode(body)
        result = encode(replace(file.text, "@@old@@", new, False, "f").text, file)
    except (NotText, ToolError):
        return
    assert result == b"\x7f" + before + new.encode() + after


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("import a\nimport b\n", "import a", "import a\nimport b"),
        ("import a\r\nimport b\r\n", "import a", "import a\nimport b"),
        ("x = [1, 2]\n", "2]", "1, 2]"),
    ],
)
async def test_an_edit_that_adds_is_not_done_twice(bench, text, old, new):
    """Seen with a small model: the same edit seven times, each on top of the last."""
    file = bench.cwd / "f.txt"
    file.write_bytes(text.encode())
    told = await bench.error("edit", path="f.txt", old=old, new=new)
    assert "already" in told and file.read_bytes() == text.encode()


@pytest.mark.parametrize(
    ("text", "old", "told"),
    [
        ("parse(x)\nparse_all(y)\nreparse\n", "parse", "inside longer words at lines 2, 3, is that meant?"),
        ("parse(x)\nparse.all(y)\n", "parse", None),
        ("a_b a_c\n", "a_", None),
        ("20 200\n", "20", "inside longer words at line 1, is that meant?"),
    ],
)
async def test_a_part_of_a_longer_word_is_told(bench, text, old, told):
    """Seen with a small model: a rename that hit longer names, and numbers."""
    (bench.cwd / "f.txt").write_text(text)
    said = await bench.text("edit", path="f.txt", old=old, new="new", replace_all=True)
    assert told in said if told else "longer" not in said
