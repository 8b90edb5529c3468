"""Jobs, the context tool, prompts, and one request after another on the same root."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aerix_server.config.settings import Settings
from aerix_server.profile.prompts import PROMPT_NAMES, embedded_prompts, fill
from aerix_server.protocol.events import ContextOp, JobEvent, SegmentEvent
from aerix_server.runtime.agent import run_agent
from aerix_server.runtime.ports import RequestSpec
from aerix_server.runtime.prompt import TURNS, opening, planner_tools, request_text
from aerix_server.runtime.root import build_root, callable_tools, start_root
from aerix_server.runtime.run import Run
from aerix_server.tools.base import Output, Tool, ToolContext, ToolInput
from aerix_server.tools.registry import registry
from tests.runtime.loop_kit import Kit, call, final, turn

Make = Callable[..., Kit]


# --- jobs ------------------------------------------------------------------------------------------------------------


async def test_a_final_waits_for_a_job_and_the_model_hears_of_it(kit: Make) -> None:
    run = kit(turn(call("bash", command="echo built; exit 4", background=True)), final("early"), final("after the job"))
    result = await run.run()
    assert (result.outcome, result.text) == ("final", "after the job")
    job = next(segment for segment in run.rebuilt().values() if segment.label == "job j1")
    assert job.role == "user" and job.text.startswith("[job j1 exited 4]\nbuilt")
    assert [(event.event, event.code) for event in run.of(JobEvent)] == [("start", None), ("exit", 4)]


async def test_without_a_turn_left_the_final_stands_and_the_job_is_ended(kit: Make) -> None:
    run = kit(turn(call("bash", command="sleep 60", background=True)), final("enough"))
    result = await asyncio.wait_for(run.run(max_turns=2), 20)
    assert (result.outcome, result.text) == ("final", "enough")
    assert [event.event for event in run.of(JobEvent)] == ["start", "killed"]


async def test_asking_while_a_job_runs_is_no_repeated_call(kit: Make) -> None:
    poll = turn(call("glob", pattern="*"))
    run = kit(turn(call("bash", command="sleep 60", background=True)), *[poll] * 7, final())
    assert (await run.run(max_turns=9)).outcome == "final"


# --- the context tool ------------------------------------------------------------------------------------------------


async def test_every_context_op(kit: Make) -> None:
    (
        run := kit(
            turn(call("read", path="a"), call("read", path="b"), call("context", op="status")),
            turn(call("context", op="pin", ids=["s4"]), call("context", op="note", text="keep this")),
            turn(call("context", op="note", text="and this"), call("context", op="unpin", ids=["s4"])),
            turn(
                call("context", op="drop", ids=["s4"]), call("context", op="summarize", ids=["s5"], text="b is empty")
            ),
            turn(call("context", op="drop", ids=["s1"]), call("context", op="drop", ids=["nope"])),
            final(),
        )
    ).cwd.joinpath("a").write_text("aa\n")
    (run.cwd / "b").write_text("bb\n")
    assert (await run.run()).outcome == "final"
    status = run.results()[2]
    assert "s1  system  " in status and "s4  read c1  " in status and " of 8192 tokens" in status
    assert [event.op for event in run.of(ContextOp)] == ["status", "pin", "note", "note", "unpin", "drop", "summarize"]
    drop = run.of(ContextOp)[5]
    assert drop.after < drop.before and drop.ids == ["s4"]
    held = run.rebuilt()
    assert "s4" not in held and "s5" not in held
    pad = next(segment for segment in held.values() if segment.label == "scratchpad")
    summary = next(segment for segment in held.values() if segment.label == "summary")
    assert (pad.text, pad.pinned) == ("[scratchpad]\nkeep this\nand this", True)
    assert (summary.text, summary.pinned) == ("[summary of s5]\nb is empty", True)
    assert (
        run.results()[-2].startswith("error: s1 (system) cannot be dropped") and "no segment nope" in run.results()[-1]
    )
    last = run.pool.prompts[-1]
    assert [(item.id, item.text, item.pinned) for item in last] == [
        (item.id, item.text, item.pinned) for item in list(held.values())[: len(last)]
    ]


# --- one request after another ---------------------------------------------------------------------------------------


async def test_the_next_request_goes_on_with_the_same_texts(kit: Make) -> None:
    run = kit(turn(call("glob", pattern="*")), final("one"), turn(call("glob", pattern="*.py")), final("two"))
    run.instructions = "Be brief."
    await run.run("First.")
    before = run.pool.prompts[-1]
    known = len(run.of(SegmentEvent))
    result = await run.run("Second.", history=run.root_state())
    assert (result.outcome, result.text, result.turns) == ("final", "two", 2)
    started = run.pool.prompts[2]
    assert [(item.id, item.text) for item in started[: len(before)]] == [(item.id, item.text) for item in before]
    assert started[-1].text == "Second." and started[-2].role == "assistant"
    added = run.of(SegmentEvent)[known:]
    assert [event.label for event in added] == ["prompt", "turn 3", "glob c2", "turn 4"]
    ids = [event.id for event in run.of(SegmentEvent)]
    assert len(ids) == len(set(ids)) and run.pool.asked[-1].seed == 3


# --- faults of a tool ------------------------------------------------------------------------------------------------


class Nothing(ToolInput):
    pass


class Broken(Tool[Nothing]):
    name = "broken"
    description = "Breaks."
    input_model = Nothing

    async def run(self, call: Nothing, ctx: ToolContext) -> Output:
        raise KeyError("secret detail")


async def test_a_fault_in_a_tool_is_a_result(kit: Make, caplog: pytest.LogCaptureFixture) -> None:
    run = kit(turn(call("broken")), final())
    ports, spec = run.ports(), RequestSpec("r1", "x")
    member = await run.pool.member("main")
    shared = Run(spec, ports, embedded_prompts(), {"broken": Broken()})
    agent = build_root(shared, member, shared.tools, None)
    assert (await run_agent(agent, lambda: start_root(shared, agent, None, []))).outcome == "final"
    assert run.results() == ["error: internal error in broken: KeyError"]
    assert "Traceback" in caplog.text


# --- prompts ---------------------------------------------------------------------------------------------------------


def test_every_prompt_is_there_and_not_empty() -> None:
    assert set(embedded_prompts()) == set(PROMPT_NAMES) and all(embedded_prompts().values())


def test_fill_leaves_other_braces_alone() -> None:
    assert fill('{"a": {x}} {y}', {"x": 1}) == '{"a": 1} {y}'


def test_the_opening_is_fixed_first_and_the_folder_last() -> None:
    tools = list(registry().values())
    one, other = (opening(embedded_prompts(), tools, Path(f"/{name}"), "", brief=False)[0].text for name in "ab")
    shared = one.rindex("Working directory: ")
    assert one[:shared] == other[:shared] and TURNS in one
    assert all(f"- {tool.name}(" in one for tool in tools)


@pytest.mark.parametrize("brief", [False, True])
def test_tools_are_described_in_full_or_briefly(brief: bool) -> None:
    text = opening(embedded_prompts(), [registry()["bash"]], Path("/a"), "", brief=brief)[0].text
    assert ("background gives a job id" in text) is not brief


def test_the_example_of_a_turn_holds_nothing_to_copy() -> None:
    assert ".py" not in TURNS and '"<tool>"' in TURNS and '": "' in TURNS


@pytest.mark.parametrize(
    ("route", "names", "restricted"),
    [
        ("edit", ["read", "plan", "agent"], ["plan", "agent"]),
        ("plan", ["read", "plan", "agent"], ["plan", "agent"]),
        ("answer", ["read", "plan", "agent"], []),
        ("investigate", ["read", "plan", "agent"], []),
        ("edit", ["read", "plan"], []),
    ],
)
def test_a_planner_is_restricted_once_it_can_delegate(route: Any, names: list[str], restricted: list[str]) -> None:
    assert planner_tools(route, names, Settings().delegation.planner_tools) == restricted


def test_a_planner_is_told_what_it_may_call(kit: Make) -> None:
    run = kit()
    callable_, planner = callable_tools(
        Run(RequestSpec("r1", "x"), run.ports(), embedded_prompts(), registry()), "edit"
    )
    assert list(callable_) == planner == ["repo_map", "plan", "context", "agent"]
    text = request_text("Do it.", embedded_prompts(), planner, None)
    assert text.startswith("Do it.\n\n[planner] ") and "repo_map, plan, context, agent" in text


async def test_a_fault_of_ours_ends_the_request_by_name(kit: Make, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_segments: Any) -> str:
        raise ZeroDivisionError

    run = kit(turn(call("bash", command="sleep 60", background=True)), broken)
    result = await run.run()
    assert result.outcome == "failed" and "ZeroDivisionError" in str(result.reason) and "Traceback" in caplog.text
    assert [event.event for event in run.of(JobEvent)] == ["start", "killed"]
