"""The parts of a text that stand in it once, as the pool's compiler follows their terminals."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aerix_server.config.bounds import UNIQUE_CHARS, UNIQUE_TOTAL_CHARS
from aerix_server.runtime.unique_text import unique_terminals
from tests.runtime.grammar_kit import accepts, compiled, drawn

PYTHON = 'def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a + b  # "minus"\n'


def spelt(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def grammar(text: str) -> str:
    terminals = unique_terminals(text, "OLD")
    assert terminals is not None
    return f"start: OLD\n{terminals}\n"


def occurrences(text: str, part: str) -> int:
    """Overlapping ones too."""
    return len(re.findall(f"(?={re.escape(part)})", text))


@pytest.mark.parametrize(
    ("text", "part", "allowed"),
    [
        (PYTHON, "def add(a, b):\n    return a + b\n", True),
        (PYTHON, "def add(a, b):", True),
        (PYTHON, "add(a, b):\n    return", True),
        (PYTHON, "add", True),
        (PYTHON, "    return a + b  #", True),
        (PYTHON, "return a + b  #", True),
        (PYTHON, 'b  # "minus"', True),
        (PYTHON, "return a + b\n", True),
        (PYTHON, "return a + b", False),
        (PYTHON, "    return a + b", False),
        (PYTHON, "", False),
        (PYTHON, "def mul(a, b):", False),
        (PYTHON, "  return a + b  #", False),
        (PYTHON, "dd(a, b):", False),
        (PYTHON, "def ad", False),
        ("a\\b\n\tc\r'\u00e9 \U0001f600\u2028\x7f\x01\n", "\tc\r'\u00e9 \U0001f600\u2028\x7f\x01", True),
        ("a\\b\\\\\n", "\\b", True),
        ("a\\b\\\\\n", "\\", False),
        ("foo\nfoobar\n", "foobar", True),
        ("foo\nfoobar\n", "foo\n", True),
        ("foo\nfoobar\n", "foo", False),
        ("one line", "one line", True),
        ("\n\n\nx\n\n", "\n\n\n", True),
        ("a a a", "a a a", True),
        ("a a a", "a a", False),
        ("x\n   \n", "x\n   \n", True),
        ("tail  ", "tail  ", True),
    ],
)
def test_a_part_is_allowed_where_it_stands_once_between_words(text: str, part: str, allowed: bool) -> None:
    assert accepts(grammar(text), spelt(part)) is allowed
    if allowed:
        assert occurrences(text, part) == 1


@pytest.mark.parametrize("text", ["", "same\n" * 400])
def test_a_text_in_which_nothing_is_told_apart_has_no_terminals(text: str) -> None:
    assert unique_terminals(text, "OLD") is None


def test_a_part_that_differs_late_only_is_left_out_and_the_rest_is_not() -> None:
    head = "x" * UNIQUE_CHARS
    text = f"{head} 1\n{head} 2\nother\n"
    assert not accepts(grammar(text), spelt(f"{head} 1"))
    assert accepts(grammar(text), spelt("1\n")) and accepts(grammar(text), spelt("other"))


LINES = st.lists(
    st.text(st.sampled_from('ab _\t("\\\u00e9\U0001f600#/'), max_size=8)
    | st.sampled_from(["    return x", "return x", "}", ""])
    | st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\n"), max_size=5),
    min_size=1,
    max_size=6,
)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


@settings(max_examples=25, deadline=None)
@given(TEXTS, st.data())
def test_whatever_the_terminals_allow_stands_in_the_text_once(text: str, data: st.DataObject) -> None:
    terminals = unique_terminals(text, "OLD")
    if terminals is None:
        return
    part = drawn(f"start: OLD\n{terminals}\n", lambda allowed: data.draw(st.sampled_from(allowed)), 80)
    if part is not None:
        assert occurrences(text, json.loads(part)) == 1 and part == spelt(json.loads(part))


@settings(max_examples=25, deadline=None)
@given(TEXTS)
@example("\x1f\n")  # what Python takes for a space is not all blank
@example("a\x1f\n")
def test_every_run_of_whole_lines_is_allowed_exactly_where_it_stands_once(text: str) -> None:
    terminals = unique_terminals(text, "OLD")
    lines = text.split("\n")
    for first in range(len(lines)):
        for last in range(first, len(lines)):
            run = "\n".join(lines[first : last + 1])
            for part in (run, run.lstrip(" \t"), run + "\n"):
                if re.search(r"[^\S\n]\Z", part) or part not in text:
                    continue  # No part ends in the space before a line's end.
                once = bool(part) and occurrences(text, part) == 1
                allowed = terminals is not None and accepts(f"start: OLD\n{terminals}\n", spelt(part))
                assert allowed is once, (text, part)


def test_the_longest_text_that_is_helped_compiles_within_the_pools_bounds() -> None:
    words = [f"name_{number} = call({number * 7919 % 1000}, 'text')\n" for number in range(2000)]
    text = "".join(words)[:UNIQUE_TOTAL_CHARS]
    assert compiled(grammar(text)).is_error() is False


def test_parts_that_begin_alike_again_and_again_compile() -> None:
    text = "a " * (UNIQUE_CHARS // 2 - 1) + "b\n"
    assert accepts(grammar(text), spelt("a b")) and not accepts(grammar(text), spelt("a a"))
