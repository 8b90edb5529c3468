"""Sixty turns in a small window: compacted as specified, nothing pinned lost, the window never passed, and the log
alone gives every context byte for byte."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from aerix_server.protocol.events import Compaction, ContextOp, MessageEvent, SegmentEvent
from aerix_server.runtime.points import NOTHING, Answer, Point
from tests.runtime.loop_kit import Kit, call, final, turn
from tests.runtime.scripted_pool import Step, count

Make = Callable[..., Kit]
WINDOW, TURNS, PINNED_EVERY = 4096, 60, 20
SETTINGS = {"delegation": {"max_turns": TURNS + 1}, "context": {"max_new_tokens": 300}}


def sixty(run: Kit, seed: int) -> list[Step]:
    """Turns that read files, run commands, note and pin."""
    chance = random.Random(seed)
    script: list[Step] = []
    for number in range(TURNS):
        (run.cwd / f"f{number}.txt").write_text(f"file {number}\n" + "word " * chance.randrange(10, 700))
        calls = [call("read", path=f"f{number}.txt")]
        if number % 3 == 1:
            calls.append(call("bash", command=f"echo out {number}; seq {chance.randrange(5, 200)}"))
        if number % 7 == 2:
            calls.append(call("context", op="note", text=f"noted {number}"))
        if number % PINNED_EVERY == 3:
            calls.append(call("context", op="status"))
        script.append(turn(*calls, thought=f"thought {number} " + "x" * chance.randrange(0, 300)))
    return [*script, final("sixty")]


@pytest.mark.parametrize("seed", range(1))
async def test_sixty_turns_in_a_window_of_4096(kit: Make, seed: int) -> None:
    run = kit(window=WINDOW, settings=SETTINGS)
    run.pool.script = sixty(run, seed)
    run.instructions = "Keep PINNED WORDS."
    result = await run.run()
    assert (result.outcome, result.text, result.turns) == ("final", "sixty", TURNS + 1)
    passes = run.of(Compaction)
    assert len(passes) > 3
    for one in passes:
        assert one.after <= one.target == WINDOW // 2 or one is passes[-1] or one.after < one.before
        assert one.replaced and all(item.marker.startswith("[compacted ") for item in one.replaced)
    for prompt, options in zip(run.pool.prompts, run.pool.asked, strict=True):
        tokens = sum(count(item.text) + 4 for item in prompt) + 3
        assert tokens + options.max_new_tokens <= WINDOW
    held = list(run.rebuilt().values())
    assert [item.label for item in held[:3]] == ["system", "instructions", "prompt"]
    pad = next(item for item in held if item.label == "scratchpad")
    assert pad.pinned and all(f"noted {number}" in pad.text for number in range(TURNS) if number % 7 == 2)
    assert not any(item.text.startswith("[compacted ") for item in held if item.pinned or item.role == "system")


async def test_the_log_gives_every_prompt_of_a_long_run_byte_for_byte(kit: Make) -> None:
    run = kit(window=WINDOW, settings=SETTINGS)
    run.pool.script = sixty(run, 9)
    await run.run()
    held: dict[str, tuple[str, str, bool]] = {}
    prompts = iter(run.pool.prompts)
    asked = 0
    for event in run.events:
        if isinstance(event, MessageEvent) and event.role == "assistant":
            # The turn is told before its own segment is: so far stands what it was asked with.
            assert [(item.id, item.role, item.text) for item in next(prompts)] == [
                (id_, role, text) for id_, (role, text, _) in held.items()
            ]
            asked += 1
        elif isinstance(event, SegmentEvent) and event.op == "remove":
            del held[event.id]
        elif isinstance(event, SegmentEvent):
            held[event.id] = (event.role, event.text or "", event.pinned)
        elif isinstance(event, ContextOp) and event.op in ("pin", "unpin"):
            for id_ in event.ids or []:
                held[id_] = (*held[id_][:2], event.op == "pin")
    assert asked == TURNS + 1


async def test_pinned_results_outlive_every_compaction(kit: Make) -> None:
    run = kit(window=WINDOW, settings=SETTINGS)
    run.pool.script = sixty(run, 5)

    def pin(segments: Any) -> str:
        chosen = [item.id for item in segments if item.text.startswith("[read ")][-1]
        return turn(call("context", op="pin", ids=[chosen]))

    run.pool.script[10:10] = [pin]
    run.settings = {**SETTINGS, "delegation": {"max_turns": TURNS + 2}}
    result = await run.run()
    assert result.outcome == "final", result.reason
    assert len(run.of(Compaction)) > 3
    pinned = [item for item in run.rebuilt().values() if item.pinned and item.text.startswith("[read ")]
    assert len(pinned) == 1 and "file 9" in pinned[0].text


async def test_the_points_of_a_compaction_and_an_objection_to_it(kit: Make) -> None:
    seen: list[Point] = []

    async def fire(point: Point) -> Answer:
        if point.name in ("PreCompact", "ContextCompact"):
            seen.append(point)
        objects = point.name == "PreCompact" and len(seen) == 1
        return Answer(block="not yet") if objects else NOTHING

    run = kit(window=WINDOW, settings=SETTINGS)
    run.pool.script = sixty(run, 2)
    run.fire = fire
    assert (await run.run()).outcome == "final"
    first, *others = run.of(Compaction)
    assert first.blocked and not first.replaced and first.before == first.after
    assert all(not one.blocked and one.replaced for one in others)
    assert [point.name for point in seen[:3]] == ["PreCompact", "PreCompact", "ContextCompact"]
    assert seen[2].facts["after"] < seen[2].facts["before"] and seen[2].facts["target"] == WINDOW // 2
