"""Delegation: implementers on forks, verifiers on fresh contexts, retries, bounds, and what the caller reads of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from aerix_server.profile.prompts import embedded_prompts
from aerix_server.protocol.events import AgentEnd, AgentSpawn, MessageEvent, SegmentEvent, Verify
from aerix_server.runtime.order import touched_twice
from aerix_server.runtime.points import NOTHING, Answer, Point
from aerix_server.runtime.ports import Definition
from tests.runtime.loop_kit import Kit, call, final, turn
from tests.runtime.scripted_pool import ALL_CONSTRAINTS, Step

Make = Callable[..., Kit]
PASS, FAIL = "pass", "fail"


def verdict(said: str, reason: str = "seen") -> str:
    return final({"verdict": said, "reason": reason})


def piece(name: str) -> dict[str, Any]:
    return call("agent", brief=f"Write {name}.txt with the text {name}.", check=f"test -f {name}.txt")


def does(name: str) -> list[Step]:
    return [turn(call("write", path=f"{name}.txt", content=name)), final(f"wrote {name}")]


def scripts(**by_name: tuple[list[Step], list[Step]]) -> dict[str, list[Step]]:
    """Name → what its implementers and its verifiers say; the prompts tell which of them asks."""
    brief, verify = (embedded_prompts()[name].partition("{brief}")[0] for name in ("brief", "verifier"))
    marked = {f"{verify}Write {name}.txt": said for name, (_, said) in by_name.items()}
    return marked | {f"{brief}Write {name}.txt": said for name, (said, _) in by_name.items()}


def outcomes(run: Kit) -> list[dict[str, Any]]:
    """What the root read of its pieces."""
    told = [event.result for event in run.messages("tool") if event.agent == "a1" and event.result]
    return [json.loads(result.text) for result in told if result.tool == "agent"]


def spawned(run: Kit) -> dict[str, AgentSpawn]:
    return {event.agent: event for event in run.of(AgentSpawn)}


def ends(run: Kit) -> dict[str, str]:
    return {event.agent: event.outcome for event in run.of(AgentEnd)}


async def test_four_pieces_at_once_one_retried_one_failing_to_the_end(kit: Make) -> None:
    again = turn(call("edit", path="b.txt", old="b", new="B"))
    run = kit(
        turn(call("repo_map"), *map(piece, "abcd"), thought="four"),
        final("all but d"),
        scripts=scripts(
            a=(does("a"), [turn(call("bash", command="cat a.txt")), verdict(PASS)]),
            b=([*does("b"), again, final("mended b")], [verdict(FAIL, "b is not B"), verdict(PASS)]),
            c=(does("c"), [verdict(PASS)]),
            d=(
                [*does("d"), final("same"), final("same")],
                [verdict(FAIL, "no"), verdict(FAIL, "no"), verdict(FAIL, "never")],
            ),
        ),
    )
    result = await run.run(route="edit", prompt="Four files.")
    assert (result.outcome, result.text) == ("final", "all but d")
    a, b, c, d = outcomes(run)
    assert [one["outcome"] for one in (a, b, c, d)] == ["done", "done", "done", "failed"]
    assert d["reason"] == "verification failed after 3 attempts: never" and "reason" not in a
    assert [one["files_touched"] for one in (a, b, c, d)] == [["a.txt"], ["b.txt"], ["c.txt"], ["d.txt"]]
    assert a["checks_run"] == [{"command": "cat a.txt", "exit": 0}] and b["summary"] == "mended b"
    assert set(result.files_touched) == {"a.txt", "b.txt", "c.txt", "d.txt"}
    assert (run.cwd / "b.txt").read_text() == "B"
    agents = spawned(run)
    assert set(agents) == {
        "a1",
        *(f"a1.c{number}" for number in (2, 3, 4, 5)),
        *(f"a1.c{number}.v1" for number in (2, 3, 4, 5)),
        *("a1.c3.r1", "a1.c3.v2", "a1.c5.r1", "a1.c5.v2", "a1.c5.r2", "a1.c5.v3"),
    }
    assert {agent.parent for agent in agents.values()} == {None, "a1"} and agents["a1.c2"].depth == 1
    assert agents["a1.c2"].kind == "implementer" and agents["a1.c2.v1"].kind == "verifier"
    assert set(ends(run)) == set(agents) and set(ends(run).values()) == {"final"}
    told = [(event.piece, event.attempt, event.verdict) for event in run.of(Verify)]
    assert sorted(told) == [
        ("a1.c2", 1, PASS),
        ("a1.c3", 1, FAIL),
        ("a1.c3", 2, PASS),
        ("a1.c4", 1, PASS),
        ("a1.c5", 1, FAIL),
        ("a1.c5", 2, FAIL),
        ("a1.c5", 3, FAIL),
    ]
    labels = [segment.label for segment in run.rebuilt().values()]
    assert labels == ["system", "prompt", "turn 1", "repo_map c1", *(f"agent c{n}" for n in (2, 3, 4, 5)), "turn 2"]
    assert run.pool.most_running > 1 and run.pool.contexts == {}
    assert result.usage.completion_tokens == sum(event.usage.completion_tokens for event in run.of(AgentEnd))


async def test_an_implementer_sees_the_shared_prefix_and_its_brief_only(kit: Make) -> None:
    run = kit(turn(piece("a")), final(), scripts=scripts(a=(does("a"), [verdict(PASS)])))
    run.instructions = "Use tabs."
    await run.run(prompt="SECRET")
    root, implementer, verifier = run.rebuilt(), run.rebuilt("a1.c1"), run.rebuilt("a1.c1.v1")
    assert [item.label for item in implementer.values()][:3] == ["system", "instructions", "brief"]
    for id_ in ("s1", "s2"):
        assert implementer[id_] == root[id_]
    assert [item.label for item in verifier.values()][:3] == ["system", "instructions", "verify"]
    assert [item.text for item in verifier.values()][:2] == [item.text for item in root.values()][:2]
    assert not any("SECRET" in item.text for item in [*implementer.values(), *verifier.values()])
    seen = next(item.text for item in verifier.values() if item.label == "verify")
    assert "wrote a" in seen and "a.txt" in seen and "test -f a.txt" in seen
    assert run.pool.forks == [("ctx1", "s2")]
    prompts = {prompt[2].text: prompt for prompt in run.pool.prompts if len(prompt) > 2}
    for agent in ("a1.c1", "a1.c1.v1"):
        held = list(run.rebuilt(agent).values())
        prompt = prompts[held[2].text]
        assert [(item.id, item.text) for item in prompt] == [(item.id, item.text) for item in held[: len(prompt)]]


async def test_a_retry_is_told_why_on_a_fresh_fork(kit: Make) -> None:
    run = kit(
        turn(piece("a")),
        final(),
        scripts=scripts(a=([*does("a"), final("again")], [verdict(FAIL, "too short"), verdict(PASS)])),
    )
    await run.run()
    labels = [item.label for item in run.rebuilt("a1.c1.r1").values()]
    assert labels == ["system", "brief", "failure", "turn 1"]
    why = next(item.text for item in run.rebuilt("a1.c1.r1").values() if item.label == "failure")
    assert "too short" in why and "a.txt" in why


async def test_an_implementer_that_does_not_end_done_ends_its_piece_without_a_verifier(kit: Make) -> None:
    loop = [turn(call("glob", pattern="*"))] * 3
    run = kit(turn(piece("a")), final(), scripts=scripts(a=(loop, [])), settings={"delegation": {"max_turns": 2}})
    result = await run.run()
    (told,) = outcomes(run)
    assert result.outcome == "final" and told["outcome"] == "budget" and "all 2 turns" in told["reason"]
    assert run.of(Verify) == [] and set(spawned(run)) == {"a1", "a1.c1"}


@pytest.mark.parametrize(
    "said", [[turn(call("glob", pattern="*"))] * 40, [final("fine")] * 3], ids=["budget", "no-verdict"]
)
async def test_a_verifier_without_a_verdict_is_a_fail(kit: Make, said: list[Step]) -> None:
    settings = {"delegation": {"retries": 0, "max_turns": 2}}
    plain = ALL_CONSTRAINTS - {"Json"}
    run = kit(turn(piece("a")), final(), scripts=scripts(a=(does("a"), said)), settings=settings, constraints=plain)
    await run.run()
    (told,) = outcomes(run)
    assert told["outcome"] == "failed" and told["reason"].startswith(
        "verification failed after 1 attempt: the verifier"
    )
    (seen,) = run.of(Verify)
    assert seen.verdict == "fail"


async def test_a_verifier_may_look_and_run_and_nothing_else(kit: Make) -> None:
    tries = [turn(call("write", path="evil", content="x"), call("agent", brief="b", check="c")), verdict(PASS)]
    plain = ALL_CONSTRAINTS - {"Json"}
    run = kit(turn(piece("a")), final(), scripts=scripts(a=(does("a"), tries)), constraints=plain)
    await run.run()
    refused = [event.result.text for event in run.messages("tool") if event.agent == "a1.c1.v1" and event.result]
    assert len(refused) == 2 and all("the tools are read, bash, grep, glob, repo_map" in text for text in refused)
    assert not (run.cwd / "evil").exists()


@pytest.mark.parametrize("depth", [0, 1, 2])
async def test_nobody_delegates_below_the_depth(kit: Make, depth: int) -> None:
    inner = call("agent", brief="Write b.txt with b.", check="true")
    run = kit(
        turn(piece("a")),
        final(),
        scripts=scripts(b=([final("b")], [verdict(PASS)]), a=([turn(inner), final("a")], [verdict(PASS)])),
        settings={"delegation": {"depth": depth}},
        constraints=ALL_CONSTRAINTS - {"Json"},
    )
    await run.run(route="edit")
    agents = set(spawned(run))
    assert ("a1.c1" in agents) is (depth > 0) and ("a1.c1.c1" in agents) is (depth > 1)
    tools = run.results()
    assert any("there is no tool 'agent' here" in text for text in tools) is (depth < 2)


async def test_at_most_so_many_pieces_run_at_once(kit: Make) -> None:
    names = "abcdef"
    run = kit(
        turn(*map(piece, names)),
        final(),
        scripts=scripts(**{name: (does(name), [verdict(PASS)]) for name in names}),
        settings={"delegation": {"parallel": 2}},
    )
    living, most = set[str](), 0

    def watch(event: Any) -> None:
        nonlocal most
        if isinstance(event, AgentSpawn) and event.kind != "root":
            living.add(event.agent)
        elif isinstance(event, AgentEnd):
            living.discard(event.agent)
        most = max(most, len(living))

    run.on_event = watch
    await run.run()
    assert most == 2 and [one["outcome"] for one in outcomes(run)] == ["done"] * 6


async def test_calls_of_a_turn_run_before_its_pieces_and_results_stand_in_call_order(kit: Make) -> None:
    calls = [piece("a"), call("write", path="first", content="x"), piece("b"), call("glob", pattern="first")]
    run = kit(turn(*calls), final(), scripts=scripts(a=(does("a"), [verdict(PASS)]), b=(does("b"), [verdict(PASS)])))
    written: list[bool] = []
    run.on_event = lambda event: (
        written.append((run.cwd / "first").exists())
        if isinstance(event, AgentSpawn) and event.kind == "implementer"
        else None
    )
    await run.run()
    assert written == [True, True]
    told = [event.result.call for event in run.messages("tool") if event.agent == "a1" and event.result]
    assert told == ["c1", "c2", "c3", "c4"]


async def test_two_pieces_on_one_file_lose_nothing_and_the_parent_is_told(kit: Make) -> None:
    names = "abcd"
    lines = {name: f"line {name}\n" for name in names}
    edits = {
        name: (
            [turn(call("edit", path="one.txt", old=f"line {name}", new=f"LINE {name}")), final(name)],
            [verdict(PASS)],
        )
        for name in names
    }
    run = kit(turn(*map(piece, names)), final(), scripts=scripts(**edits))
    (run.cwd / "one.txt").write_text("".join(lines.values()))
    await run.run()
    assert (run.cwd / "one.txt").read_text() == "".join(lines.values()).replace("line", "LINE")
    assert [note for note in run.notes() if "one.txt: c1, c2, c3, c4" in note]


@pytest.mark.parametrize(
    ("touched", "note"),
    [
        ({}, None),
        ({"c1": ["a"], "c2": ["b"]}, None),
        ({"c1": ["a", "a"]}, None),
        ({"c1": ["b", "a"], "c2": ["a"], "c3": ["b"]}, ["a: c1, c2", "b: c1, c3"]),
    ],
)
def test_the_note_on_shared_files(touched: dict[str, list[str]], note: list[str] | None) -> None:
    told = touched_twice(touched)
    assert (told.split("\n")[1:] if told else None) == note


async def test_a_definition_gives_its_text_its_tools_its_member_and_its_turns(kit: Make) -> None:
    run = kit(
        turn(call("agent", brief="Write a.txt.", check="true", definition="writer")),
        final(),
        scripts={"# Verify": [verdict(PASS)], "# Your piece": [turn(call("bash", command="true")), final("wrote a")]},
        members=("main", "other"),
        constraints=ALL_CONSTRAINTS - {"Json"},
    )
    run.definitions = {"writer": Definition("writer", "Writes.", "You write well.", ("read", "write"), "other", 7)}
    await run.run()
    spawn = spawned(run)["a1.c1"]
    assert (spawn.definition, spawn.member) == ("writer", "other") and spawned(run)["a1.c1.v1"].definition is None
    labels = [item.label for item in run.rebuilt("a1.c1").values()]
    assert labels[:3] == ["system", "definition", "brief"]
    assert "there is no tool 'bash' here; the tools are read, write" in run.results()[0]
    assert run.pool.forks == [], "another model has no rows to share"
    assert "definition writer: Writes." in run.rebuilt()["s1"].text
    assert run.pool.asked


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"definition": "nobody"}, "error: there is no agent definition 'nobody'; none are defined"),
        ({"member": "gone"}, "error: no member gone Leave member out to use main."),
    ],
)
async def test_unknown_names_are_results(kit: Make, given: dict[str, Any], said: str) -> None:
    asked = turn(call("agent", brief="b", check="c", **given))
    run = kit(asked, final(), constraints=ALL_CONSTRAINTS - {"Json"})
    assert (await run.run()).outcome == "final"
    assert run.results()[0].startswith(said) and set(spawned(run)) == {"a1"}


async def test_choices_of_none_are_not_offered(kit: Make) -> None:
    run = kit(final())
    await run.run()
    assert "- agent(brief: string, check: string)" in run.rebuilt()["s1"].text


async def test_a_pieces_result_is_capped_with_its_outcome_kept(kit: Make) -> None:
    long = [*does("a")[:1], final("word " * 3000)]
    settings = {"context": {"tool_caps": {"agent": 600}, "max_new_tokens": 8000}}
    run = kit(turn(piece("a")), final(), scripts=scripts(a=(long, [verdict(PASS)])), window=64_000, settings=settings)
    await run.run()
    (told,) = [event.result for event in run.messages("tool") if event.agent == "a1" and event.result]
    assert told.truncated and told.spool and told.text.startswith('{"outcome": "done"') and len(told.text) < 900
    assert json.loads((run.cwd.parent / "s.spool" / told.spool).read_text())["summary"] == "word " * 3000


async def test_a_cancel_ends_every_agent_by_name_and_at_once(kit: Make) -> None:
    never = asyncio.Event()
    run = kit(
        turn(piece("a"), piece("b")), scripts=scripts(a=([never], []), b=([turn(call("bash", command="sleep 60"))], []))
    )
    waiting = asyncio.Event()
    run.on_event = lambda event: (
        waiting.set() if isinstance(event, MessageEvent) and event.agent == "a1.c2" and event.calls else None
    )
    request = asyncio.create_task(run.run())
    await asyncio.wait_for(waiting.wait(), 20)
    run.cancelled.set()
    result = await asyncio.wait_for(request, 20)
    assert result.outcome == "cancelled"
    assert ends(run) == {"a1": "cancelled", "a1.c1": "cancelled", "a1.c2": "cancelled"} and run.pool.contexts == {}


async def test_the_points_of_a_piece(kit: Make) -> None:
    seen: list[tuple[str, str, str]] = []

    async def fire(point: Point) -> Answer:
        seen.append((point.name, point.agent, point.kind))
        return Answer(context="Mind the tabs.") if point.name == "SubagentStart" else NOTHING

    run = kit(turn(piece("a")), final(), scripts=scripts(a=([final("did a")], [verdict(PASS)])))
    run.fire = fire
    await run.run()
    assert seen == [
        ("AgentSpawn", "a1", "root"),
        ("PreToolUse", "a1", "root"),
        ("AgentSpawn", "a1.c1", "implementer"),
        ("SubagentStart", "a1.c1", "implementer"),
        ("SubagentStop", "a1.c1", "implementer"),
        ("AgentSpawn", "a1.c1.v1", "verifier"),
        ("SubagentStart", "a1.c1.v1", "verifier"),
        ("SubagentStop", "a1.c1.v1", "verifier"),
        ("Verify", "a1", "root"),
        ("PostToolUse", "a1", "root"),
        ("Stop", "a1", "root"),
    ]
    assert "# Hook context\n\nMind the tabs." in [item.text for item in run.rebuilt("a1.c1").values()]


async def test_every_segment_of_every_agent_is_counted_and_named(kit: Make) -> None:
    run = kit(turn(piece("a")), final(), scripts=scripts(a=(does("a"), [verdict(PASS)])))
    await run.run()
    ids: dict[str, list[str]] = {}
    for event in run.of(SegmentEvent):
        assert event.tokens > 0 and event.context == event.agent
        ids.setdefault(event.agent, []).append(event.id)
    assert all(len(set(given)) == len(given) for given in ids.values())
