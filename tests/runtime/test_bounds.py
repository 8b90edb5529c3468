"""The counters and their named ends."""

from __future__ import annotations

import pytest

from aerix_server.runtime.bounds import HardLimit, Repeats, TurnBudget, repeat_note
from aerix_server.runtime.ports import Ended


def test_a_turn_budget_ends_as_budget() -> None:
    budget = TurnBudget(2)
    budget.take()
    budget.take()
    with pytest.raises(Ended) as ended:
        budget.take()
    assert ended.value.outcome == "budget" and "2 turns" in str(ended.value.reason) and budget.used == 2


def test_the_first_hard_limit_hit_cuts_the_turn_and_the_second_kills() -> None:
    limit = HardLimit()
    assert limit.hit(64, "x", 1000) == 64
    with pytest.raises(Ended) as ended:
        limit.hit(500, "read c1 (s5, 800 tokens)", 1000)
    assert ended.value.outcome == "killed"
    assert str(ended.value.reason).startswith("context floor: no room ") and "read c1" in str(ended.value.reason)


@pytest.mark.parametrize("room", [63, 0, -500])
def test_too_little_room_kills_at_once(room: int) -> None:
    with pytest.raises(Ended, match="context floor: no room"):
        HardLimit().hit(room, "x", 1000)


@pytest.mark.parametrize(
    ("made", "times"),
    [
        ("a", 1),
        ("aaa", 3),
        ("aaaaa", 5),
        ("ab", 1),
        ("abab", 2),
        ("ababab", 3),
        ("ababababab", 5),
        ("abcabcabc", 3),
        ("abaca", 1),
        ("abacadaea", 1),
        ("aab", 1),
        ("baaa", 3),
        ("abcdefgh" * 3, 3),
        ("abcdefghi" * 5, 5),
        ("rareraearae", 3),  # in any order, as long as nothing new is done
        ("tatbtctdt", 1),  # the tests after each new edit
    ],
)
def test_repeats_count_calls_and_cycles(made: str, times: int) -> None:
    repeats = Repeats()
    assert [repeats.add(call) for call in made][-1] == times


def test_the_model_is_told_at_three_and_stopped_at_five() -> None:
    assert [repeat_note("grep", times) is not None for times in range(5)] == [False, False, False, True, False]
    with pytest.raises(Ended) as ended:
        repeat_note("grep", 5)
    assert ended.value.outcome == "killed" and str(ended.value.reason).startswith("repeated call:")
