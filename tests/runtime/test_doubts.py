"""Doubts: which tools and paths of a turn the model itself found unlikely."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerix_server.pool.port import TokenLogprob
from aerix_server.protocol.events import Call, Doubt
from aerix_server.runtime.doubts import find_doubts

CALLS = (
    Call(id="c4", tool="grep", input={"pattern": "tool", "path": "src/\u00e9\U0001f600.py"}),
    Call(id="c5", tool="read", input={"path": 'a"\\b', "more": {"path": "inner", "tool": "x"}, "list": ["path", {}]}),
)
RAW = json.dumps(
    {"thought": "path", "calls": [{"tool": call.tool, "input": call.input} for call in CALLS]}, ensure_ascii=False
)


def tokens(*parts: tuple[str, float] | tuple[str, float, bool]) -> list[TokenLogprob]:
    """(text, probability, forced)."""
    return [TokenLogprob(part[0], math.log(part[1]), len(part) == 3 and bool(part[2])) for part in parts]


def around(value: str, *unlikely: tuple[str, float] | tuple[str, float, bool], raw: str = RAW) -> list[TokenLogprob]:
    """The tokens of `raw`, all certain but those of `value`'s first place."""
    before, _, after = raw.partition(value)
    return tokens((before, 1.0), *unlikely, (after, 1.0))


@pytest.mark.parametrize(
    ("found", "doubts"),
    [
        (around("grep", ("gr", 0.05), ("ep", 0.9)), [("c4", "tool", "grep", 0.05)]),
        (around("grep", ("gr", 0.2), ("ep", 0.9)), []),
        (around("grep", ("gr", 0.05, True), ("ep", 0.9)), []),
        (around('{"tool": "grep', ('{"tool": "g', 0.04), ("rep", 1.0)), [("c4", "tool", "grep", 0.04)]),
        (around('"tool": "grep"', ('"tool": "', 0.01), ("grep", 0.9), ('"', 0.01)), []),
        (around('read", ', ('read", ', 0.1)), [("c5", "tool", "read", 0.1)]),
        (around('"path": "src', ('"path": "src', 0.1)), [("c4", "path", "src/\u00e9\U0001f600.py", 0.1)]),
        (
            around("src/\u00e9\U0001f600.py", ("src/", 1.0), ("\ufffd", 0.1), ("\ufffd", 0.9), ("\U0001f600.py", 1.0)),
            [("c4", "path", "src/\u00e9\U0001f600.py", 0.1)],
        ),
        (
            around(
                "src/\u00e9\U0001f600.py", ("src/\u00e9", 1.0), ("\ufffd", 1.0), ("\ufffd\ufffd", 0.03), (".py", 1.0)
            ),
            [("c4", "path", "src/\u00e9\U0001f600.py", 0.03)],
        ),
        (around('a\\"\\\\b', ('a\\"', 1.0), ("\\\\b", 0.06)), [("c5", "path", 'a"\\b', 0.06)]),
        (around('"inner"', ('"inner"', 0.01)), []),
        (around('"thought": "path"', ('"thought": "path"', 0.01)), []),
        (around("grep", ("other", 0.01)), []),
        ([], []),
    ],
    ids=str.split(
        "first-token at-the-bound forced merged-before quotes-only merged-after second-path broken-character "
        "broken-further escaped inner-field other-value not-its-tokens no-tokens"
    ),
)
def test_the_least_likely_token_of_a_name_or_path_counts(
    found: list[TokenLogprob], doubts: list[tuple[str, str, str, float]]
) -> None:
    given_doubts = find_doubts(RAW, found, CALLS, 0.2)
    assert [(doubt.call, doubt.field, doubt.value) for doubt in given_doubts] == [doubt[:3] for doubt in doubts]
    assert [doubt.probability for doubt in given_doubts] == pytest.approx([doubt[3] for doubt in doubts])


def test_calls_that_were_dropped_are_not_doubted() -> None:
    assert find_doubts(RAW, around("read", ("read", 0.01)), CALLS[:1], 0.2) == ()


def test_a_final_and_a_fenced_turn() -> None:
    final = json.dumps({"thought": "t", "final": {"calls": [{"tool": "read"}]}})
    assert find_doubts(final, tokens((final, 0.01)), (), 0.2) == ()
    fenced = f"```json\n{RAW}\n```"
    assert len(find_doubts(fenced, around("read", ("read", 0.01), raw=fenced), CALLS, 0.2)) == 1


def pieces(data: bytes, cuts: list[int]) -> list[str]:
    """What a member gives as the texts of tokens: bytes that are no whole character are U+FFFD."""
    places = [0, *sorted({cut % len(data) for cut in cuts} - {0}), len(data)]
    return [data[start:end].decode("utf-8", "replace") for start, end in itertools.pairwise(places)]


@given(st.lists(st.integers(0, 10**6), max_size=60))
def test_however_a_text_is_cut_into_tokens_its_names_and_paths_are_found(cuts: list[int]) -> None:
    told: Any = find_doubts(RAW, tokens(*[(piece, 0.1) for piece in pieces(RAW.encode(), cuts)]), CALLS, 0.2)
    wanted = [Doubt(call=call.id, field="tool", value=call.tool, probability=0.1) for call in CALLS]
    paths = [Doubt(call=call.id, field="path", value=call.input["path"], probability=0.1) for call in CALLS]
    assert [doubt.model_copy(update={"probability": 0.1}) for doubt in told] == [
        wanted[0],
        paths[0],
        wanted[1],
        paths[1],
    ]
