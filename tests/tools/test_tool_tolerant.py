"""edit's tolerant pass: what is passed over, that several places are never one, and that nothing else is touched."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerix_server.tools.base import ToolError
from aerix_server.tools.replacing import replace

TRAILING = "ignoring trailing blanks"
TWINS = "taking typographic characters for their ASCII twins; new was written with the file's"
INDENT = "ignoring indentation; new was indented alike"
NUMBERS = "leaving out the line numbers, which are not part of the file"

CASES = [
    # before, old, new, after, how it was matched
    pytest.param("a  \nb\nc\n", "a\nb\n", "a\nB\n", "a  \nB\nc\n", TRAILING, id="blanks in the file"),
    pytest.param("a\nb\nc\n", "a \t\nb\n", "A\nb\n", "A\nb\nc\n", TRAILING, id="blanks in old"),
    pytest.param("a \n\t\nb\n", "a\n\nb", "a\n\nx\nb", "a \n\t\nx\nb\n", TRAILING, id="a line of blanks"),
    pytest.param("a \nb \nc\n", "a\nb\n", "", "c\n", TRAILING, id="lines taken out"),
    pytest.param("a \r\nb\r\nc\r\n", "a\nb", "a\nb\nx", "a \r\nb\r\nx\r\nc\r\n", TRAILING, id="E01 CRLF"),
    pytest.param("a \nb", "a\nb", "a\nB", "a \nB", TRAILING, id="E05 no last newline"),
    pytest.param("say(“hi”)\n", 'say("hi")', 'say("ho")', "say(“ho”)\n", TWINS, id="quotes in the file"),
    pytest.param('x = "a"\n', "x = “a”", "x = “b”", 'x = "b"\n', TWINS, id="quotes in old"),
    pytest.param('f("a")\n', "f(“a”)", "f(“b”, “c”)", 'f("b", "c")\n', TWINS, id="a new quote as the file's"),
    pytest.param("a – b\n", "a - b", "a - c", "a – c\n", TWINS, id="dash"),
    pytest.param("a\u00a0= 1\n", "a = 1", "a = 2", "a\u00a0= 2\n", TWINS, id="no-break space"),
    pytest.param("it’s ‘so’\n", "it's 'so'", "it's 'no'", "it’s ‘no’\n", TWINS, id="two ways in the file"),
    pytest.param(
        "    if a:\n        b\n", "if a:\n    b\n", "if c:\n    b\n", "    if c:\n        b\n", INDENT, id="less"
    ),
    pytest.param(
        "if a:\n    b\nc\n", "  if a:\n      b\n", "  if a:\n      d\n", "if a:\n    d\nc\n", INDENT, id="more"
    ),
    pytest.param("\tif a:\n\t\tb\n", "if a:\n\tb\n", "if a:\n\tb\n\tc\n", "\tif a:\n\t\tb\n\t\tc\n", INDENT, id="tabs"),
    pytest.param(
        "\tif a:\n\t\tb\n",
        "    if a:\n        b",
        "    if a:\n        c",
        "\tif a:\n\t\tc\n",
        INDENT,
        id="tabs, spaces in old",
    ),
    pytest.param(
        "if a:\n\tb\n",
        "if a:\n  b\n",
        "if a:\n  if x:\n    b\n",
        "if a:\n\tif x:\n\t\tb\n",
        INDENT,
        id="tabs, two spaces in old",
    ),
    pytest.param(
        "if a:\n    b\n",
        "if a:\n\tb\n",
        "if a:\n\tc\n\n\td\n",
        "if a:\n    c\n\n    d\n",
        INDENT,
        id="spaces, tabs in old",
    ),
    pytest.param("  a\n\n  b\n", " a\n \n b\n", " a\n\n c\n", "  a\n\n  c\n", INDENT, id="a blank line within"),
    pytest.param(
        "    x = 1  \n    y\n", "  x = 1\n  y", "  x = 1\n  z", "    x = 1  \n    z\n", INDENT, id="and blanks"
    ),
    pytest.param(
        "a\nb\nc\n", "     1\ta\n     2\tb", "     1\tA\n     2\tb", "A\nb\nc\n", NUMBERS, id="numbers in both"
    ),
    pytest.param("a\nb\nc\n", "     2\tb\n", "B\n", "a\nB\nc\n", NUMBERS, id="numbers in old"),
    pytest.param("a \n\nb\n", "1\ta\n2\t\n3\tb\n", "1\ta\n2\tb\n", "a \nb\n", NUMBERS, id="numbers and blanks"),
    pytest.param("é \ufb01\nb \n", "é ﬁ\nb\n", "é ﬁ\nc\n", "é \ufb01\nc\n", TRAILING, id="other characters"),
]


@pytest.mark.parametrize(("before", "old", "new", "after", "how"), CASES)
async def test_what_is_passed_over(bench, before, old, new, after, how):
    path = bench.put("f", before)
    text = await bench.text("edit", path="f", old=old, new=new)
    assert path.read_bytes().decode() == after
    assert re.fullmatch(rf"edited f: 1 replacement at line \d+, matched by {re.escape(how)}", text)


REFUSED = [
    pytest.param("a \nb\na\t\nb\n", "a\nb", "ignoring trailing blanks, it was found 2 times (lines 1, 3)", id="blanks"),
    pytest.param(
        "“a”\n‘a’ “a”\n", '"a"', "characters for their ASCII twins, it was found 2 times (lines 1, 2)", id="twins"
    ),
    pytest.param(
        " x\n  x\n   y\n", "    x\n", "ignoring indentation, it was found 2 times (lines 1, 2)", id="indentation"
    ),
    pytest.param("a\nb\na\n", "     1\ta\n", "part of the file, it was found 2 times (lines 1, 3)", id="numbers"),
    pytest.param("x \n" * 2000, "x\nx\n", "it was found 1000 times (lines 1, 2, 3", id="more than are counted"),
    pytest.param("x \n" * 3, "x\nx\n", "it was found 2 times (lines 1, 2)", id="E12 overlapping"),
    pytest.param("  a\n    b\n", "a\n b\n", "differ in spaces only", id="two shifts"),
    pytest.param("a  b\n", "a b\n", "differ in spaces only", id="spaces within a line"),
    pytest.param("ab\n", "a\nb\n", "old was not found", id="a line end"),
    pytest.param("a\nb", "b\n", "old was not found", id="E05 no newline at the end"),
    pytest.param("Hello\n", "hello", "nearest lines", id="letters of another size"),
    pytest.param("x\n", "     1\tx\ny", "old was not found", id="numbers in one line only"),
    pytest.param("x\n", " \n", "old was not found", id="nothing but blanks"),
    pytest.param("a\n", "", "old is empty", id="E12 nothing"),
]


@pytest.mark.parametrize(("before", "old", "told"), REFUSED)
async def test_what_is_refused_leaves_the_file(bench, before, old, told):
    path = bench.put("f", before)
    stands = (path.read_bytes(), path.stat().st_mtime_ns)
    assert told in await bench.error("edit", path="f", old=old, new="new text")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == stands


@pytest.mark.parametrize(("before", "old", "new", "after", "how"), CASES)
async def test_replace_all_tolerates_nothing(bench, before, old, new, after, how):
    path = bench.put("f", before)
    assert "old was not found" in await bench.error("edit", path="f", old=old, new=new, replace_all=True)
    assert path.read_bytes().decode() == before


@pytest.mark.parametrize(
    ("before", "old", "new"),
    [
        pytest.param("    a\n", "        a\n", "  b\n", id="less than the shift takes"),
        pytest.param("\ta\n", "    a\n", "  b\n", id="half a tab"),
        pytest.param("a\n", "     1\ta\n", "b\n     2\tc\n", id="numbers in a part of new"),
    ],
)
async def test_a_new_text_that_cannot_follow_is_refused(bench, before, old, new):
    path = bench.put("f", before)
    assert "old was not found" in await bench.error("edit", path="f", old=old, new=new)
    assert path.read_text() == before


async def test_an_exact_match_is_all_that_counts(bench):
    path = bench.put("f", "x = 1\n  x = 1 \n")
    assert await bench.text("edit", path="f", old="x = 1\n", new="x = 2\n") == "edited f: 1 replacement at line 1"
    assert path.read_text() == "x = 2\n  x = 1 \n"


async def test_a_tolerant_match_that_changes_nothing_is_named(bench):
    bench.put("f", "a\n")
    assert await bench.error("edit", path="f", old="a ", new="a") == (
        "f would stay as it is: matched by ignoring trailing blanks, line 1 reads like new already"
    )


word = st.sampled_from(["a", "b = 1", "if x:", "“q”", "it's", ""])
blank = st.sampled_from(["", " ", "  ", "    ", "\t", "\u00a0"])
line = st.builds(lambda indent, text, trail: indent + text + trail, blank, word, blank)
ending = st.sampled_from(["\n", "\r\n"])


@settings(max_examples=300, deadline=None)
@given(data=st.data(), new=st.lists(line, min_size=1, max_size=3), end=ending)
def test_only_the_matched_lines_change(data, new, end):
    """Any file and an old text made from its lines with other blanks: what lies outside them is never changed."""
    lines = data.draw(st.lists(line, min_size=1, max_size=8))
    first = data.draw(st.integers(0, len(lines) - 1))
    last = data.draw(st.integers(first, min(first + 2, len(lines) - 1)))
    shift = data.draw(blank)
    old = "".join(f"{shift}{own.strip()}\n" for own in lines[first : last + 1])
    text = "".join(own + end for own in lines)
    try:
        result = replace(text, old, "".join(own + "\n" for own in new), False, "f")
    except ToolError:
        return
    count = last + 1 - first
    (number,) = result.lines
    after = result.text.split(end)
    if result.told:
        kept = lines[: number - 1], lines[number - 1 + count :]
        assert after[: number - 1] == kept[0]
        assert after[len(after) - 1 - len(kept[1]) : -1] == kept[1]
        assert [same.strip() for same in lines[number - 1 : number - 1 + count]] == [
            same.strip() for same in lines[first : last + 1]
        ] or "typographic" in result.told
    assert result.text.count("\r\n") == (result.text.count("\n") if end == "\r\n" else 0)


@settings(max_examples=100, deadline=None)
@given(own=st.lists(line.filter(lambda text: bool(text.strip(" \t"))), min_size=1, max_size=4), shift=blank)
def test_what_stands_there_twice_is_never_chosen(own, shift):
    text = "".join(f"{line}\n" for line in own)
    old = "".join(f"{shift}{line.strip()}\n" for line in own)
    try:
        result = replace(f"{text}-\n{text}", old, "new\n", False, "f")
    except ToolError:
        return
    # One of the two could only be chosen if it were there exactly, and then both would be.
    raise AssertionError(result)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(text=st.text('ab \t\n“"', max_size=30), old=st.text('ab \t\n“"', min_size=1, max_size=8))
async def test_a_refused_edit_leaves_bytes_and_time(bench, text, old):
    path = bench.put("f", text)
    stands = (path.read_bytes(), path.stat().st_mtime_ns)
    try:
        await bench.text("edit", path="f", old=old, new="new")
    except ToolError:
        assert (path.read_bytes(), path.stat().st_mtime_ns) == stands
    else:
        assert path.read_bytes() != stands[0]


async def test_many_alike_lines_are_searched_in_time(bench):
    """Quadratic work here would be 10^10 comparisons."""
    bench.put("f", "x \n" * 100_000 + "y\n")
    old = "x\n" * 50_000 + "z\n"
    assert "old was not found" in await bench.error("edit", path="f", old=old, new="w")
