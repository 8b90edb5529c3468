"""What a model that goes round in circles, or stops too early, is told and offered."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from aerix_server.runtime.points import NOTHING, Answer, Point
from tests.runtime.loop_kit import Kit, call, final, turn
from tests.runtime.scripted_pool import ALL_CONSTRAINTS, CHECKED

Make = Callable[..., Kit]
KINDS = [ALL_CONSTRAINTS, CHECKED]


def offered(constraint: Mapping[str, Any]) -> set[str]:
    """The tools that a turn's constraint lets it call."""
    if constraint["kind"] == "Lark":
        return set(re.findall(r'\\"tool\\": \\"(\w+)\\"', constraint["grammar"]))
    calls = constraint["schema"]["oneOf"][0]["properties"]["calls"]["items"]["oneOf"]
    return {one["properties"]["tool"]["const"] for one in calls}


def all_offered(run: Kit) -> list[set[str]]:
    return [offered(options.constraint) for options in run.pool.asked if options.constraint]


@pytest.mark.parametrize("constraints", KINDS, ids=["lark", "json"])
async def test_a_repeated_tool_is_withheld_until_something_new_is_done(kit: Make, constraints: frozenset[str]) -> None:
    read, bash = call("read", path="f.txt"), call("bash", command="true")
    script = [turn(read), turn(read), turn(bash), turn(read), turn(call("grep", pattern="x")), final()]
    run = kit(*script, constraints=constraints)
    (run.cwd / "f.txt").write_text("x\n")
    assert (await run.run()).outcome == "final"
    withheld = ["read" not in tools for tools in all_offered(run)]
    assert withheld == [False, False, True, False, True, False]
    assert all("bash" in tools for tools in all_offered(run))


async def test_who_is_told_to_go_on_may_use_every_tool(kit: Make) -> None:
    bash = turn(call("bash", command="true"))
    run = kit(bash, bash, final(), turn(call("bash", command="make lint")), final())

    async def fire(point: Point) -> Answer:
        return Answer(block="run make lint") if point.name == "Stop" and not point.facts["active"] else NOTHING

    run.fire = fire
    assert (await run.run()).outcome == "final"
    assert ["bash" in tools for tools in all_offered(run)] == [True, True, False, True, True]


@pytest.mark.parametrize("constraints", KINDS, ids=["lark", "json"])
async def test_a_tool_without_input_is_not_offered_while_its_answer_stands(
    kit: Make, constraints: frozenset[str]
) -> None:
    run = kit(turn(call("repo_map")), turn(call("bash", command="true")), final(), constraints=constraints)
    (run.cwd / "f.txt").write_text("x\n")
    await run.run()
    assert ["repo_map" in tools for tools in all_offered(run)] == [True, False, False]


async def test_it_is_offered_again_once_its_answer_was_compacted(kit: Make) -> None:
    noise = [turn(call("bash", command=f"seq {number}000 {number}250")) for number in range(1, 9)]
    run = kit(turn(call("repo_map")), *noise, final(), window=4096, constraints=ALL_CONSTRAINTS)
    for number in range(40):
        (run.cwd / f"a_file_with_a_long_name_{number}.txt").write_text("x\n")
    await run.run()
    there = ["repo_map" in tools for tools in all_offered(run)]
    assert there[:2] == [True, False] and there[-1]


async def test_the_next_thought_begins_otherwise(kit: Make) -> None:
    read = call("read", path="f.txt")
    same = "I need to read the file."
    run = kit(turn(read, thought=same), turn(read, thought=same), final(), constraints=ALL_CONSTRAINTS)
    (run.cwd / "f.txt").write_text("x\n")
    await run.run()
    thoughts = [
        re.findall(r'THOUGHT: /"\[(.*?)\]\(', options.constraint["grammar"])
        for options in run.pool.asked
        if options.constraint
    ]
    assert thoughts[:2] == [[], []] and thoughts[2][0].endswith("Ii")


async def test_it_can_be_switched_off(kit: Make) -> None:
    read = call("read", path="f.txt")
    run = kit(turn(call("repo_map")), turn(read), turn(read), final(), settings={"assist": {"change_course": False}})
    (run.cwd / "f.txt").write_text("x\n")
    await run.run()
    assert all(tools >= {"read", "repo_map"} for tools in all_offered(run))


async def test_a_member_without_constraints_is_told_and_stopped_only(kit: Make) -> None:
    looks = turn(call("grep", pattern="x"))
    run = kit(*[looks] * 5, constraints=ALL_CONSTRAINTS - {"Json", "Lark"})
    result = await run.run()
    assert result.outcome == "killed" and "repeated call" in str(result.reason)


WRITE, LOOK = call("write", path="new.txt", content="x"), call("glob", pattern="*")


@pytest.mark.parametrize(
    ("route", "script", "asked", "text"),
    [
        ("edit", [final("I will."), turn(WRITE), final("done")], 1, "done"),
        ("edit", [turn(LOOK), final("nothing to do"), final("still nothing")], 1, "still nothing"),
        ("edit", [turn(WRITE), final("done")], 0, "done"),
        ("edit", [turn(call("bash", command="true")), final("done")], 0, "done"),
        ("answer", [final("an answer")], 0, "an answer"),
        ("plan", [final("a plan")], 0, "a plan"),
    ],
)
async def test_an_edit_that_changed_nothing_is_asked_once(
    kit: Make, route: str, script: list[str], asked: int, text: str
) -> None:
    run = kit(*script, settings={"delegation": {"planner_tools": []}})
    result = await run.run(route=route)
    assert (result.outcome, result.text) == ("final", text) and run.pool.script == []
    assert len([note for note in run.notes() if note.startswith("[no change]")]) == asked


async def test_nobody_is_asked_without_a_turn_left_or_where_it_is_off(kit: Make) -> None:
    for more in ({"max_turns": 1}, {}):
        settings = {} if more else {"assist": {"ask_for_changes": False}}
        result = await kit(final("I will."), settings=settings).run(route="edit", **more)
        assert (result.outcome, result.text) == ("final", "I will.")
