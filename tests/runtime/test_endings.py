"""However a request with pieces ends, each agent ends once, by name, and nothing of it stays in the pool or runs on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from aerix_server.pool.port import (
    ContextState,
    Edit,
    GenerationItem,
    GenerationOptions,
    NewSegment,
    PoolFailed,
)
from aerix_server.protocol.events import AgentEnd, AgentSpawn, Event, JobEvent, MessageEvent, Notice, ProgressEvent
from aerix_server.runtime.points import NOTHING, Answer, Point
from tests.runtime.loop_kit import Kit, call, final, turn
from tests.runtime.scripted_pool import ALL_CONSTRAINTS, ScriptedPool
from tests.runtime.test_cancel import PROMPT_S, cancel_when, ended_well
from tests.runtime.test_pieces import FAIL, PASS, does, ends, piece, scripts, spawned, verdict

Make = Callable[..., Kit]
STUBBORN = "trap '' TERM; while :; do sleep 1; done"
"""A command that only KILL ends, seconds after TERM."""


@dataclass
class Failing(ScriptedPool):
    """One that is gone from its call number `lost_at` on."""

    lost_at: int = 0
    calls: int = 0

    def _call(self) -> None:
        self.calls += 1
        if self.lost_at and self.calls >= self.lost_at:
            raise PoolFailed("unavailable", "gone.")

    async def create(self, member: str, segments: Sequence[NewSegment]) -> ContextState:
        self._call()
        return await super().create(member, segments)

    async def edit(self, context: str, edits: Sequence[Edit]) -> ContextState:
        self._call()
        return await super().edit(context, edits)

    async def show(self, context: str) -> ContextState:
        self._call()
        return await super().show(context)

    async def generate(self, context: str, options: GenerationOptions) -> AsyncGenerator[GenerationItem, None]:
        self._call()
        async for item in super().generate(context, options):
            yield item


class SlowToAnswer(ScriptedPool):
    """A context is there a while before whoever asked for it learns of it."""

    async def create(self, member: str, segments: Sequence[NewSegment]) -> ContextState:
        made = await super().create(member, segments)
        await asyncio.sleep(0.02)
        return made


class NeverDrops(ScriptedPool):
    async def drop(self, context: str) -> None:
        await asyncio.Event().wait()


def two_pieces(kit: Make) -> Kit:
    """One piece that is tried twice, and one beside it."""
    run = kit()
    run.pool = Failing(
        [turn(piece("a"), piece("b")), final()],
        scripts=scripts(
            a=([*does("a"), final("again")], [verdict(FAIL), verdict(PASS)]),
            b=(does("b"), [turn(call("bash", command="test -f b.txt")), verdict(PASS)]),
        ),
    )
    return run


async def all_ended(run: Kit) -> None:
    told = [event.agent for event in run.of(AgentEnd)]
    assert len(told) == len(set(told)) and set(told) == set(spawned(run))
    assert not told or told[-1] == "a1", "nobody outlives its caller"
    await nothing_left(run)


async def nothing_left(run: Kit) -> None:
    await asyncio.sleep(0)  # What was cancelled at the very end is done one step later.
    assert asyncio.all_tasks() == {asyncio.current_task()} and run.pool.contexts == {}


SHARES = [0.0, 0.2, 0.45, 0.7, 0.95]
"""Of a whole run: after so much of it something happens."""


@pytest.fixture
async def whole(kit: Make) -> tuple[int, int]:
    """Events and pool calls of a run that nothing happens to."""
    run = two_pieces(kit)
    assert (await run.run()).outcome == "final"
    for name in "ab":
        (run.cwd / f"{name}.txt").unlink()
    assert isinstance(run.pool, Failing)
    return len(run.events), run.pool.calls


@pytest.mark.parametrize("share", SHARES)
async def test_a_cancel_at_any_time(kit: Make, whole: tuple[int, int], share: float) -> None:
    run = two_pieces(kit)
    run.on_event = after(int(whole[0] * share), run.cancelled.set)
    assert (await run.run()).outcome == "cancelled"
    await all_ended(run)


@pytest.mark.parametrize("share", SHARES)
async def test_a_pool_lost_at_any_time(kit: Make, whole: tuple[int, int], share: float) -> None:
    run = two_pieces(kit)
    assert isinstance(run.pool, Failing)
    run.pool.lost_at = max(int(whole[1] * share), 1)
    result = await run.run()
    assert result.outcome == "failed" and "the pool went away" in str(result.reason)
    await all_ended(run)


@pytest.mark.parametrize("share", SHARES)
async def test_a_full_disk_at_any_time(kit: Make, whole: tuple[int, int], share: float) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    run = two_pieces(kit)
    run.on_event = after(int(whole[0] * share), full)
    result = await run.run()
    assert result.outcome == "failed" and "the session log could not be written" in str(result.reason)
    await nothing_left(run)


def after(count: int, act: Callable[[], None]) -> Callable[[Event], None]:
    seen = 0

    def watch(_event: Event) -> None:
        nonlocal seen
        seen += 1
        if seen > count:
            act()

    return watch


# Found by review: the first piece to end made its caller cancel the others again, in the middle of their own ending.
async def test_a_cancel_lets_every_piece_end_what_it_started(kit: Make) -> None:
    stubborn = [turn(call("bash", command=STUBBORN, background=True)), asyncio.Event()]
    run = kit(turn(piece("a"), piece("b")), scripts=scripts(a=([asyncio.Event()], []), b=(stubborn, [])))
    result, seconds = await cancel_when(run, lambda event: begins(event, "a1.c2", turns=2)(run))
    ended_well(run, result, seconds)
    assert ends(run) == {"a1": "cancelled", "a1.c1": "cancelled", "a1.c2": "cancelled"}
    await gone(run)


# Found by review: a cancel while the jobs of an agent that is done were being ended left it without an end.
async def test_a_cancel_while_an_agent_ends_its_jobs(kit: Make) -> None:
    run = kit(turn(call("bash", command=STUBBORN, background=True)), final())
    result, seconds = await cancel_when(run, lambda event: isinstance(event, MessageEvent) and event.final, max_turns=2)
    ended_well(run, result, seconds)
    await gone(run)


async def test_a_cancel_while_a_piece_is_ended_by_another(kit: Make) -> None:
    busy = [turn(call("bash", command=STUBBORN, background=True)), asyncio.Event()]
    scripted = scripts(a=([final("a")], [verdict(PASS)]), b=(busy, []))
    run = kit(turn(piece("a"), piece("b")), scripts=scripted)
    started = asyncio.Event()
    run.on_event = lambda event: started.set() if isinstance(event, JobEvent) else None

    async def fire(point: Point) -> Answer:
        if point.name != "Verify":
            return NOTHING
        await started.wait()
        # Ending that job takes longer than this.
        asyncio.get_running_loop().call_later(0.02, run.cancelled.set)
        return Answer(end="policy")

    run.fire = fire
    assert (await asyncio.wait_for(run.run(), 20)).outcome == "cancelled"
    await all_ended(run)
    await gone(run)


@pytest.mark.parametrize("depth", [0, 1, 2])
async def test_the_time_of_a_cancel_does_not_grow_with_the_depth(kit: Make, depth: int) -> None:
    inner = call("agent", brief="Write b.txt with the text b.", check="true")
    first: list[Any] = [turn(piece("a")) if depth else asyncio.Event()]
    run = kit()
    run.pool = NeverDrops(
        first, scripts=scripts(b=([asyncio.Event()], []), a=([turn(inner) if depth > 1 else asyncio.Event()], []))
    )
    deepest = ["a1", "a1.c1", "a1.c1.c1"][depth]
    result, seconds = await cancel_when(run, lambda event: begins(event, deepest)(run))
    assert result.outcome == "cancelled" and set(ends(run)) == set(spawned(run)) and len(ends(run)) == depth + 1
    assert seconds < PROMPT_S


@pytest.mark.parametrize("agent", ["a1", "a1.c1", "a1.c1.v1"])
async def test_a_context_under_way_is_given_back(kit: Make, agent: str) -> None:
    run = kit()
    run.pool = SlowToAnswer([turn(piece("a"))], scripts=scripts(a=([final("a")], [])))
    result, seconds = await cancel_when(run, lambda event: isinstance(event, AgentSpawn) and event.agent == agent)
    assert result.outcome == "cancelled" and seconds < PROMPT_S and ends(run)[agent] == "cancelled"
    await all_ended(run)
    assert len(run.pool.asked) == ["a1", "a1.c1", "a1.c1.v1"].index(agent)


async def test_what_a_cancelled_piece_changed_is_told(kit: Make) -> None:
    run = kit(turn(piece("a")), scripts=scripts(a=([does("a")[0], asyncio.Event()], [])))
    result, _ = await cancel_when(run, lambda event: begins(event, "a1.c1", turns=2)(run))
    assert result.files_touched == ("a.txt",)
    assert [event.files_touched for event in run.of(AgentEnd)] == [["a.txt"], ["a.txt"]]


async def test_pieces_at_once_tell_of_a_small_window_once(kit: Make) -> None:
    asked = [call("agent", brief=f"Piece {name}.", check="true", member="other") for name in "ab"]
    run = kit(
        turn(*asked),
        final(),
        scripts={"# Verify": [verdict(PASS)] * 2, "# Your piece": [final("x")] * 2},
        members=("main", "other"),
        window=1800,
        constraints=ALL_CONSTRAINTS - {"Json"},
        settings={"context": {"max_new_tokens": 100}},
    )
    assert (await run.run()).outcome == "final" and len(spawned(run)) == 5
    told = [notice.text for notice in run.of(Notice)]
    assert len(told) == 2 and all("is small" in text for text in told), "one for each member"


def begins(event: Event, agent: str, turns: int = 1) -> Callable[[Kit], bool]:
    """Whether the event is the begin of an agent's turn number `turns`."""

    def seen(run: Kit) -> bool:
        made = [one for one in run.messages("assistant") if one.agent == agent]
        waits = isinstance(event, ProgressEvent) and event.agent == agent and event.phase == "prefill"
        return waits and len(made) == turns - 1

    return seen


async def gone(run: Kit) -> None:
    """What was told to end and takes its time has been handed over, and ends."""
    assert run.left
    deadline = time.monotonic() + 20
    while not all(one.gone() for one in run.left):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
