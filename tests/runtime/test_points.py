"""What somebody outside may say at each point of a request, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aerix_server.config.bounds import STOP_CONTINUES
from aerix_server.protocol.events import AgentEnd
from aerix_server.runtime.points import NOTHING, Answer, Point
from tests.runtime.loop_kit import Kit, call, final, turn

Make = Callable[..., Kit]


def answering(run: Kit, **by_name: Answer) -> list[Point]:
    """Let the points be answered by their names; gives those that were told."""
    seen: list[Point] = []

    async def fire(point: Point) -> Answer:
        seen.append(point)
        return by_name.get(point.name, NOTHING)

    run.fire = fire
    return seen


async def test_a_call_that_is_blocked_is_refused_with_the_reason(kit: Make) -> None:
    run = kit(turn(call("write", path="x", content="y")), final())
    seen = answering(run, PreToolUse=Answer(block="not in this folder"))
    assert (await run.run()).outcome == "final"
    assert run.results() == ["refused: not in this folder"] and not (run.cwd / "x").exists()
    asked = next(point for point in seen if point.name == "PreToolUse")
    assert asked.facts == {"tool": "write", "input": {"path": "x", "content": "y"}, "call": "c1"}


@pytest.mark.parametrize(
    ("changed", "result"),
    [
        ({"path": "other", "content": "y"}, "created other (1 line)"),
        ({"path": 3}, "error: path must be a string, not the number 3; content is missing: it must be a string"),
        ({}, "error: path is missing: it must be a string; content is missing: it must be a string"),
    ],
)
async def test_a_changed_input_is_validated_again(kit: Make, changed: dict[str, Any], result: str) -> None:
    run = kit(turn(call("write", path="x", content="y")), final())
    answering(run, PreToolUse=Answer(input=changed))
    await run.run()
    assert [told.split("\n")[0] for told in run.results()] == [result] and not (run.cwd / "x").exists()


async def test_what_was_done_is_told_after_a_call_not_what_was_asked(kit: Make) -> None:
    run = kit(turn(call("write", path="x", content="y")), final())
    changed = {"path": "other", "content": "y"}
    seen = answering(run, PreToolUse=Answer(input=changed))
    await run.run()
    told = next(point.facts for point in seen if point.name == "PostToolUse")
    assert told["input"] == changed and not told["failed"]


async def test_what_is_said_after_a_call_stands_beside_its_result(kit: Make) -> None:
    run = kit(turn(call("bash", command="echo out")), final())
    seen = answering(run, PostToolUse=Answer(block="run the formatter", context="see STYLE.md"))
    await run.run()
    assert run.results() == ["out\n[exit 0]\nrun the formatter\nsee STYLE.md"]
    told = next(point.facts for point in seen if point.name == "PostToolUse")
    assert (told["tool"], told["text"], told["failed"]) == ("bash", "out\n[exit 0]", False)


async def test_an_agent_goes_on_at_most_so_often(kit: Make) -> None:
    run = kit(*[final(f"{number}") for number in range(STOP_CONTINUES + 3)])
    seen = answering(run, Stop=Answer(block="the tests fail"))
    result = await run.run()
    assert (result.outcome, result.text, result.turns) == ("final", str(STOP_CONTINUES), STOP_CONTINUES + 1)
    assert run.notes() == ["[not finished] the tests fail"] * STOP_CONTINUES
    active = [point.facts["active"] for point in seen if point.name == "Stop"]
    assert active == [False] + [True] * STOP_CONTINUES


async def test_without_a_turn_left_nobody_is_told_to_go_on(kit: Make) -> None:
    run = kit(final("only"))
    answering(run, Stop=Answer(block="more"))
    result = await run.run(max_turns=1)
    assert (result.outcome, result.text) == ("final", "only")


@pytest.mark.parametrize("name", ["AgentSpawn", "PreToolUse", "PostToolUse", "PreCompact", "Stop"])
async def test_an_agent_may_be_ended_at_every_point(kit: Make, name: str) -> None:
    run = kit(
        *[turn(call("bash", command=f"seq {number * 1000} {number * 1000 + 250}")) for number in range(12)],
        final(),
        window=4096,
    )
    answering(run, **{name: Answer(end="policy")})
    result = await run.run()
    assert (result.outcome, result.reason) == ("refused", f"{name} ended the agent a1: policy")
    assert [end.outcome for end in run.of(AgentEnd)] == ["refused"] and run.pool.contexts == {}


async def test_a_route_may_end_the_request(kit: Make) -> None:
    run = kit(route="edit")
    answering(run, RouteDecision=Answer(end="no edits today"))
    result = await run.run(route=None)
    assert result.outcome == "refused" and "no edits today" in str(result.reason) and len(run.pool.asked) == 1


async def test_a_cancel_does_not_wait_for_whoever_is_asked(kit: Make) -> None:
    run = kit(turn(call("bash", command="true")))
    asked = asyncio.Event()

    async def never(point: Point) -> Answer:
        if point.name == "PreToolUse":
            asked.set()
            await asyncio.Event().wait()
        return NOTHING

    run.fire = never
    request = asyncio.create_task(run.run())
    await asyncio.wait_for(asked.wait(), 20)
    run.cancelled.set()
    assert (await asyncio.wait_for(request, 20)).outcome == "cancelled"
    assert [end.outcome for end in run.of(AgentEnd)] == ["cancelled"]
