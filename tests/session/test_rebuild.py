"""Events → the root to go on with, and calls that were interrupted (L06)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerix_server.runtime.ports import RootState, SegmentRecord
from aerix_server.runtime.resume import unanswered
from aerix_server.session.rebuild import SPOOL_GONE, rebuild


def segment(id_: str, role: str = "user", text: str | None = "t", op: str = "append", **more: Any) -> dict[str, Any]:
    fields = {"agent": "a1", "context": "a1", "label": "l", "tokens": 1, "pinned": False} | more
    return {"type": "segment", "op": op, "id": id_, "role": role, "text": text, **fields}


def turn(number: int, *calls: str) -> list[dict[str, Any]]:
    """A turn's message and its segment."""
    inputs = ", ".join('{"tool": "read", "input": {"path": "x"}}' for _ in calls)
    text = f'{{"thought": "", "calls": [{inputs}]}}' if calls else '{"thought": "", "final": "f"}'
    made = [{"id": call, "tool": "read", "input": {"path": "x"}} for call in calls]
    message = {"type": "message", "agent": "a1", "role": "assistant", "turn": number, "calls": made}
    return [message, segment(f"s{number * 10}", "assistant", text, label=f"turn {number}")]


def result(call: str, number: int) -> list[dict[str, Any]]:
    told = {"call": call, "tool": "read", "text": "r", "error": False, "ms": 1}
    message = {"type": "message", "agent": "a1", "role": "tool", "turn": 1, "result": told}
    return [message, segment(f"s{number}", text=f"[read {call}]\nr", label=f"read {call}")]


def rebuilt(*events: dict[str, Any], spool: dict[str, str] | None = None) -> RootState:
    return rebuild(events, (spool or {}).get)


def ids(state: RootState) -> list[str]:
    return [item.id for item in state.segments]


def test_nothing_gives_nothing() -> None:
    assert rebuilt() == RootState((), "", 0, 0, 0, 0)


def test_operations_apply_in_order() -> None:
    state = rebuilt(
        segment("s1", "system", "sys", pinned=True, label="system"),
        segment("s2"),
        segment("s3", text="long"),
        segment("s3", op="replace", text="[compacted]"),
        segment("s2", op="remove", text=None),
        segment("s9", text="summary", pinned=True),
        {"type": "context.op", "agent": "a1", "op": "pin", "ids": ["s3", "gone"]},
        {"type": "context.op", "agent": "a1", "op": "unpin", "ids": ["s9"]},
    )
    assert state.segments == (
        SegmentRecord("s1", "system", "system", "sys", True),
        SegmentRecord("s3", "user", "l", "[compacted]", True),
        SegmentRecord("s9", "user", "l", "summary", False),
    )
    assert state.segments_made == 9


def test_other_agents_do_not_count() -> None:
    state = rebuilt(
        {"type": "agent.spawn", "agent": "root", "kind": "root"},
        {"type": "agent.spawn", "agent": "root.c1", "kind": "implementer"},
        segment("s1", agent="root"),
        segment("s7", agent="root.c1"),
        {"type": "plan", "agent": "root.c1", "op": "write", "text": "theirs"},
    )
    assert (ids(state), state.plan, state.segments_made) == (["s1"], "", 1)


def test_the_plan_and_the_numbers() -> None:
    state = rebuilt(
        *turn(1, "c1", "c2"),
        {"type": "plan", "agent": "a1", "op": "write", "text": "first"},
        {"type": "plan", "agent": "a1", "op": "read", "text": "first"},
        {"type": "plan", "agent": "a1", "op": "write", "text": "refused", "decision": "abort"},
        {"type": "job", "agent": "a1", "job": "j4", "event": "start"},
        *turn(7),
    )
    assert (state.plan, state.turns, state.calls, state.jobs) == ("first", 7, 2, 4)


def test_spooled_texts() -> None:
    events = [segment("s1", text=None, text_ref="1.txt"), segment("s2", text=None, text_ref="2.txt")]
    assert [item.text for item in rebuilt(*events, spool={"1.txt": "whole"}).segments] == ["whole", SPOOL_GONE]


@pytest.mark.parametrize(
    ("events", "open_calls"),
    [
        ([*turn(1, "c1", "c2")], ["c1", "c2"]),
        ([*turn(1, "c1", "c2"), *result("c1", 11)], ["c2"]),
        ([*turn(1, "c1"), *result("c1", 11)], []),
        ([*turn(1, "c1"), *result("c1", 11), *turn(2, "c2", "c3"), *result("c2", 21)], ["c3"]),
        # The result was told, and its segment not: the model has not seen it.
        ([*turn(1, "c1"), result("c1", 11)[0]], ["c1"]),
        # The turn was told, and its segment not: none of its calls ran, and the model has not said it.
        ([*turn(1, "c1"), *result("c1", 11), turn(2, "c2")[0]], []),
        ([turn(1, "c1")[0]], []),
        ([*turn(1)], []),
    ],
)
def test_calls_without_results_are_found(events: list[dict[str, Any]], open_calls: list[str]) -> None:
    state = rebuilt(segment("s1", "system"), *events)
    assert [call.id for call in unanswered(state)] == open_calls


VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.lists(st.text(max_size=3), max_size=2)
KINDS = st.sampled_from(["segment", "message", "context.op", "plan", "job", "agent.spawn", "odd"])
FIELDS = st.sampled_from(
    [
        "agent",
        "id",
        "op",
        "role",
        "text",
        "text_ref",
        "calls",
        "result",
        "turn",
        "ids",
        "job",
        "kind",
        "pinned",
        "label",
    ]
)
ODD = st.builds(
    lambda kind, fields: {"agent": "a1", **fields, "type": kind}, KINDS, st.dictionaries(FIELDS, VALUES, max_size=8)
)


@given(st.lists(ODD, max_size=12))
def test_events_that_lack_what_they_should_have_break_nothing(events: list[dict[str, Any]]) -> None:
    rebuilt(*events)
