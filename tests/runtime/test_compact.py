"""What compaction replaces, in which order, and by what."""

from __future__ import annotations

import pytest

from aerix_server.protocol.events import Role
from aerix_server.runtime.compact import Held, largest, marker, plan, turn_tokens


def held(id_: str, label: str, tokens: int, role: Role = "user", pinned: bool = False, text: str = "x") -> Held:
    return Held(id_, role, label, text, pinned, tokens)


CONTEXT = (
    held("s1", "system", 900, "system"),
    held("s2", "instructions", 500, "system"),
    held("s3", "prompt", 400),
    held("s4", "turn 1", 100, "assistant"),
    held("s5", "read c1", 3210),
    held("s6", "turn 2", 90, "assistant"),
    held("s7", "bash c2", 24),
    held("s8", "grep c3", 700, pinned=True),
    held("s9", "read c4", 800),
    held("s10", "job j1", 600),
    held("s11", "summary", 300, pinned=True),
    held("s12", "scratchpad", 200, pinned=True),
    held("s13", "note", 150),
    held("s14", "compaction note", 60),
    held("s15", "read c5", 40, text="[compacted tool result of call c5 (read, 3000 tokens)]"),
)


@pytest.mark.parametrize(
    ("excess", "chosen"),
    [
        (0, []),
        (-5, []),
        (1, ["s5"]),
        (3186, ["s5"]),
        (3187, ["s5", "s9"]),
        (4000, ["s5", "s9", "s10"]),
        (4600, ["s5", "s9", "s10", "s4"]),
        (99_999, ["s5", "s9", "s10", "s4", "s6"]),
    ],
)
def test_results_go_first_then_turns_oldest_first_and_nothing_else(excess: int, chosen: list[str]) -> None:
    assert [item.id for item in plan(CONTEXT, excess)] == chosen


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        (held("s", "read c12", 3210), "[compacted tool result of call c12 (read, 3210 tokens)]"),
        (held("s", "turn 3", 77, "assistant"), "[compacted turn 3 (77 tokens)]"),
        (held("s", "job j2", 50), "[compacted output of job j2 (50 tokens)]"),
    ],
)
def test_markers(segment: Held, text: str) -> None:
    assert marker(segment) == text


def test_a_label_that_only_looks_like_a_result_stays() -> None:
    assert (
        plan((held("s1", "read c1", 900, "system"), held("s2", "prompt", 900), held("s3", "my read c1", 900)), 500)
        == ()
    )


@pytest.mark.parametrize(
    ("most", "window", "turn"),
    [(2048, 8192, 2048), (2048, 4096, 1024), (100, 8192, 100), (2048, 32, 8), (2048, 0, 1), (2048, 3, 1)],
)
def test_a_turn_never_asks_for_more_than_a_quarter(most: int, window: int, turn: int) -> None:
    assert turn_tokens(most, window) == turn


def test_the_largest_are_named() -> None:
    assert largest(CONTEXT, 2) == "read c1 (s5, 3210 tokens), system (s1, 900 tokens)"
