"""The line that says that a change made a file stop being valid, and when nothing is said."""

from __future__ import annotations

import sys
import warnings

import pytest

from aerix_server.config.bounds import SYNTAX_FILE_BYTES
from aerix_server.tools.syntax import syntax_note

DEEP = b"[" * 200_000 + b"]" * 200_000


@pytest.mark.parametrize(
    ("name", "before", "after", "told"),
    [
        ("a.py", None, b"x = 1\n", ""),
        ("a.py", None, b"x = 1\ny = (\n", "[syntax] line 2: '(' was never closed"),
        ("a.py", b"x = 1\n", b"x = 1\ndef f():\nreturn 1\n", "[syntax] line 3: expected an indented block"),
        ("a.PY", b"x\n", b"if\n", "[syntax] line 1: invalid syntax"),
        ("a.pyi", b"x\n", b"if\n", "[syntax] line 1: invalid syntax"),
        ("a.py", b"if\n", b"if if\n", ""),
        ("a.py", b"", b"if\n", "[syntax] line 1: invalid syntax"),
        ("a.py", b"x\n", b"\xef\xbb\xbfx = '\xc3\xa9'\r\ny = 2\r\n", ""),
        ("a.py", b"x\n", b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", ""),
        ("a.py", b"x\n", b"x = '\xe9'\n", "[syntax] line 1: "),
        ("a.py", b"x\n", b"x = '\\d'\n", ""),
        ("a.py", b"x\n", b"x\0\n", "[syntax] line 1: source code"),
        ("a.py", b"x\n", b"a\rb\rc\nif\n", "[syntax] line 2: invalid syntax"),
        ("a.py", b"x\n", b"a\x0cb\n", "[syntax] line 1: "),
        ("a.json", None, b'{"a": 1}', ""),
        ("a.json", b"{}", b'{"a": 1\n"b": 2}', "[syntax] line 2: Expecting ',' delimiter"),
        ("a.json", b"{}", b'\xef\xbb\xbf{"a": 1}', ""),
        ("a.json", b"// a comment\n{}", b"// a comment\n{,}", ""),
        ("a.json", b"{}", DEEP, ""),
        ("a.json", b"{}", b"\0", "[syntax] line 1: binary (NUL at byte 0, 1 bytes)"),
        ("a.toml", None, b"a = 1\n", ""),
        ("a.toml", b"a = 1\n", b"a = 1\nb = \n", "[syntax] line 2: Invalid value"),
        ("a.toml", b"a = 1\n", b"a = 1\r\nb = [\r\n", "[syntax] line 3: "),
        ("a.toml", b"", b"a = 1\na = 2\n", "[syntax] line 2: "),
        ("a.txt", None, b"(", ""),
        ("py", None, b"(", ""),
        ("a.py.bak", None, b"(", ""),
        ("a.py", None, b"(" + b" " * SYNTAX_FILE_BYTES, ""),
    ],
)
def test_what_is_told(name, before, after, told):
    note = syntax_note(name, before, after)
    assert note.startswith(f"\n{told}" if told else "") and bool(note) == bool(told)
    assert "\n" not in note[1:]


@pytest.mark.parametrize("source", [DEEP, b"-" * 100_000 + b"1", b"(" * 5000 + b")" * 5000, b"a" + b".b" * 50_000])
def test_what_is_nested_too_deeply_ends_nothing(source):
    limit = sys.getrecursionlimit()
    syntax_note("a.py", None, source)
    assert sys.getrecursionlimit() == limit


def test_a_warning_of_the_parser_is_no_fault():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert syntax_note("a.py", None, b"x = '\\d'\nassert (1, 'x')\n") == ""


async def test_the_line_ends_the_results_of_edit_and_write(bench):
    bench.put("a.py", "def f(x):\n    return x\n")
    text = await bench.text("edit", path="a.py", old="(x):", new="(x:")
    assert text == "edited a.py: 1 replacement at line 1\n[syntax] line 1: '(' was never closed"
    assert await bench.text("edit", path="a.py", old="return", new="return (") == (
        "edited a.py: 1 replacement at line 2"
    )
    text = await bench.text("write", path="b.json", content="{")
    assert text.startswith("created b.json (1 line)\n[syntax] line 1: ")
    bench.put("real.toml", "a = 1\n")
    (bench.cwd / "link").symlink_to("real.toml")
    text = await bench.text("edit", path="link", old="1", new="")
    assert text.endswith("\n[syntax] line 1: Invalid value")
