"""Several generations on one member: nobody waits for long, room is made and given back, and every job ends once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher

from caldrix.engine.backend import Logits, Row
from caldrix.engine.batch import Batch
from caldrix.engine.constrain import Masks
from caldrix.engine.generate import Generation, Prepared
from caldrix.engine.jobs import Failed, Finished, Job, Part, Prefill, TextDelta
from caldrix.engine.member import LoadedMember, Serving
from caldrix.engine.schedule import FEW_ROWS
from caldrix.protocol.messages import Json, OneOf, Sampling
from tests.doubles.toy_backend import Script, ToyBackend
from tests.engine.conftest import BOUND_S, Run, start

Open = Callable[..., LoadedMember]
OPTIONS = ["yes and more", "no and more", "yes but less"]


class GatedBackend(ToyBackend):
    """Passes wait at a gate, so that a test can arrange what stands in the queue when they go on.

    `poison` makes the logits of every row of this token no numbers.
    """

    def __init__(self, replies: list[str], **options: int | bool) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.poison: int | None = None
        super().__init__(Script(replies), **options)  # type: ignore[arg-type]

    def decode(self, rows: list[Row]) -> Logits:  # type: ignore[override]
        assert self.gate.wait(BOUND_S)
        logits = super().decode(rows)
        wanted = [row for row in rows if row.wanted]
        for line, row in enumerate(wanted):
            if row.token == self.poison:
                logits[line, 5] = np.nan
        return logits

    def all_rows(self) -> int:
        return self._cells.total - self._cells.free


@contextmanager
def serving(backend: ToyBackend, *, budget: int = 1 << 24, batch: int = 4) -> Iterator[LoadedMember]:
    member = LoadedMember(backend, Serving(budget, batch))
    backend.passes.clear()
    try:
        yield member
    finally:
        if isinstance(backend, GatedBackend):
            backend.gate.set()
        member.close()


def user(text: str) -> list[Part]:
    return [Part("user", text)]


def last_items(run: Run) -> list[Finished | Failed]:
    """All last items that came; the member has to be closed, so that none is still to come."""
    while not run.arrived.empty():
        run.items.append(run.arrived.get_nowait())
    return [item for item in run.items if isinstance(item, (Finished, Failed))]


def sequences_of(rows: list[Row]) -> set[int]:
    return {row.sequence for row in rows}


def test_four_run_together_and_each_gets_its_own_text() -> None:
    backend = GatedBackend(["alpha " * 10, "beta " * 10, "gamma " * 10, "delta " * 10])
    with serving(backend) as member:
        backend.gate.clear()
        runs = [start(member, user(f"question {number}, at some length")) for number in range(4)]
        backend.gate.set()
        texts = [run.finished().text for run in runs]
        assert sorted(texts) == sorted(backend.script.replies)
        assert max(len(sequences_of(rows)) for rows in backend.passes) == 4
    assert all(run.streamed == text for run, text in zip(runs, texts, strict=True))


def test_more_jobs_than_slots_wait_and_know_their_place() -> None:
    backend = GatedBackend(["x" * 20])
    with serving(backend, batch=2) as member:
        backend.gate.clear()
        runs = [start(member, user(f"question {number}")) for number in range(5)]
        runs[1].until(Prefill)
        assert [member.position(run.job) for run in runs] == [0, 0, 1, 2, 3]
        queue = member.status("m").queue
        assert (queue.running, queue.waiting) == (2, 3)
        assert member.expected_wait(runs[2].job) is not None
        assert member.expected_wait(runs[0].job) is None
        backend.gate.set()
        assert [run.finished().text for run in runs] == ["x" * 20] * 5


def test_clients_are_served_in_turn() -> None:
    backend = GatedBackend(["x" * 5])
    began: list[str] = []
    with serving(backend, batch=1) as member:
        backend.gate.clear()
        names = {member.render(user(f"{name} asks")).ids: name for name in ("a0", "a1", "a2", "a3", "b0", "b1")}
        begin = member._worker._begin

        def noted(prepared: Prepared) -> Generation:
            began.append(names[tuple(prepared.job.ids)])
            return begin(prepared)

        member._worker._begin = noted
        runs = [start(member, user(f"{name} asks"), client=name[0]) for name in names.values()]
        runs[0].until(Prefill)
        assert [member.position(run.job) for run in runs] == [0, 2, 4, 5, 1, 3]
        backend.gate.set()
        assert [run.finished().text for run in runs] == ["x" * 5] * 6
    assert began == ["a0", "b0", "a1", "b1", "a2", "a3"], "as they were told"


def test_a_long_prompt_stops_no_other_for_more_than_one_pass() -> None:
    backend = GatedBackend(["y" * 400])
    with serving(backend) as member:
        backend.gate.clear()  # until both are there: a slow machine may come too late for the other's tokens
        first = start(member, user("short"), tokens=400, draft=False)  # drafted it would end before the prompt is read
        long = start(member, user("word " * 600), tokens=5)
        backend.gate.set()
        long.finished()
        first.finished()
        reading = [rows for rows in backend.passes if sum(not row.wanted for row in rows) > FEW_ROWS]
        assert len(reading) > 5
        alone = [rows for rows in reading if len(sequences_of(rows)) == 1]
        assert len(alone) <= 1, "the first pass may have been that of the other's own prompt"


def test_a_short_prompt_is_not_held_up_by_a_long_one() -> None:
    backend = GatedBackend(["z" * 5])
    with serving(backend) as member:
        backend.gate.clear()
        long = start(member, user("word " * 2000), tokens=5)
        short = start(member, user("word"), tokens=5)
        backend.gate.set()
        short.finished()
        read = [rows for rows in backend.passes if len(rows) > FEW_ROWS]
        assert len(read) <= 1 + 1 + 5, "the pass under way, its own prompt's, and those of its five tokens"
        long.finished()


def test_cancel_of_a_running_and_of_a_waiting_job_leaves_the_others_alone() -> None:
    backend = GatedBackend(["a" * 3000, "b" * 300, "c" * 10])
    with serving(backend, batch=2) as member:
        running = start(member, user("first"), tokens=3000)
        running.until(TextDelta)
        other = start(member, user("second"))
        other.until(TextDelta)
        waiting, cancelled = start(member, user("third")), start(member, user("fourth"))
        cancelled.job.cancel()
        assert cancelled.finished().finish == "cancelled" and member.position(cancelled.job) is None
        running.job.cancel()
        done = running.finished()
        assert done.finish == "cancelled" and "a" * 3000 > done.text == running.streamed and done.text
        assert other.finished().text == "b" * 300 and waiting.finished().text == "c" * 10


def test_a_cancelled_wait_has_no_tokens() -> None:
    backend = GatedBackend(["a" * 50])
    with serving(backend, batch=1) as member:
        backend.gate.clear()
        running = start(member, user("first"))
        running.until(Prefill)
        waiting = start(member, user("second"))
        waiting.job.cancel()
        backend.gate.set()
        done = waiting.finished()
        assert (done.finish, done.text, done.ids, done.usage.completion_tokens, done.prefill_ms) == (
            "cancelled",
            "",
            (),
            0,
            0,
        )
        running.finished()


@pytest.mark.parametrize("can_cut", [True, False])
@pytest.mark.parametrize("budget", [0, 1 << 24])
def test_jobs_are_set_aside_for_want_of_room_and_end_as_they_should(can_cut: bool, budget: int) -> None:
    """Each fits alone; three together do not, neither while their prompts are read nor while they decode."""
    replies = [f"reply {number} " * 20 for number in range(3)]
    backend = GatedBackend(replies, cells=620, can_cut=can_cut)
    with serving(backend, budget=budget) as member:
        backend.gate.clear()
        prompts = ["one " * 60, "two " * 60, "three " * 40]
        runs = [start(member, user(prompt), tokens=300) for prompt in prompts]
        backend.gate.set()
        done = [run.finished() for run in runs]
        assert sorted(one.text for one in done) == sorted(replies)
        for run, one in zip(runs, done, strict=True):
            assert run.streamed == one.text and one.usage.completion_tokens == len(one.ids) == len(one.text)
            assert sum(item.tokens for item in run.items if isinstance(item, TextDelta)) == len(one.ids)
    assert all(len(last_items(run)) == 1 for run in runs)


def test_a_prompt_that_is_read_is_not_starved_by_one_that_comes_and_goes() -> None:
    """The room that a running prompt still needs is not given to another, which would be set aside at once again."""
    backend = GatedBackend(["a" * 20, "b" * 20], cells=1000)
    with serving(backend) as member:
        backend.gate.clear()
        long = start(member, user("l" * 850))
        short = start(member, user("s" * 250))
        backend.gate.set()
        assert {long.finished().text, short.finished().text} == {"a" * 20, "b" * 20}


def test_a_job_set_aside_is_cancelled_with_what_it_gave() -> None:
    backend = GatedBackend(["a" * 900, "b" * 900], cells=800)
    with serving(backend) as member:
        first = start(member, user("first " * 20), tokens=600)
        first.until(TextDelta)
        second = start(member, user("second " * 20), tokens=600)
        second.until(TextDelta)
        aside = wait_until_aside(member)
        assert aside is second.job
        aside.cancel()
        done = second.finished()
        assert done.finish == "cancelled" and done.text == second.streamed == "b" * len(done.text)
        assert done.usage.completion_tokens == len(done.text) > 0
        assert first.finished().text == "a" * 600


def wait_until_aside(member: LoadedMember) -> Job:
    """The job that is set aside, as soon as there is one."""
    waited = threading.Event()
    for _ in range(int(BOUND_S / 0.001)):
        if aside := list(member._worker._aside):
            return aside[0].generation.job
        waited.wait(0.001)
    raise AssertionError("nobody was set aside")


def test_a_job_set_aside_beside_a_shared_prefix_comes_back() -> None:
    """Stored rows take cells of their own, shared ones do not: what has room as a copy may have none as stored rows."""
    shared = "the same beginning of both, " * 15
    backend = GatedBackend(["a" * 150, "b" * 150], cells=780)
    with serving(backend) as member:
        first = start(member, user(shared + "first"), tokens=200)
        first.until(TextDelta)
        second = start(member, user(shared + "second"), tokens=200)
        assert {first.finished().text, second.finished().text} == {"a" * 150, "b" * 150}
    read = sum(len(rows) for rows in backend.passes)
    assert read < 3 * len(shared) + 2 * 150, "the shared rows are not computed again and again"


def test_a_fork_of_a_running_generation_shares_its_rows() -> None:
    backend = GatedBackend(["parent " * 30, "child " * 30])
    with serving(backend) as member:
        parent = start(member, user("s" * 1000), tokens=200)
        parent.until(TextDelta)
        child = start(member, user("s" * 1000 + "and more"), tokens=200)
        child.until(TextDelta)
        assert backend.all_rows() < 1000 + 3 * 250
        assert child.finished().usage.recomputed_from >= 1000 and parent.finished().text == "parent " * 28 + "pare"


def test_logits_that_are_no_numbers_fail_that_one_only_and_leave_no_rows() -> None:
    backend = GatedBackend(["fine " * 20])
    with serving(backend) as member:
        backend.poison = ord("\n")  # the last token of the header, so of each prompt
        healthy_replies = start(member, user("broken"))
        failed = healthy_replies.until(Failed)
        assert isinstance(failed, Failed) and failed.code == "engine_failed" and "no numbers" in failed.message
        backend.poison = None
        again = start(member, user("broken")).finished()
        assert again.text == "fine " * 20 and again.usage.recomputed_from == 0, "nothing of the broken rows is used"


def test_only_the_sequence_with_broken_logits_fails() -> None:
    backend = GatedBackend(["a" * 200, "bbb!" * 5])
    with serving(backend) as member:
        healthy = start(member, user("healthy"))
        healthy.until(TextDelta)
        backend.poison = ord("!")
        broken = start(member, user("broken"))
        assert isinstance(broken.until(Finished), Failed)
        assert healthy.finished().text == "a" * 200


def test_a_pass_that_fails_ends_those_in_it_and_the_member_lives() -> None:
    backend = GatedBackend(["a" * 9000, "b" * 9000, "c" * 9000, "c" * 50])
    with serving(backend) as member:
        runs = [start(member, user(f"number {number}"), tokens=9000, draft=False) for number in range(3)]
        runs[2].until(TextDelta)
        backend.gate.clear()
        backend.failures = 1
        waiting = start(member, user("later"))
        backend.gate.set()
        ends = [run.until(Finished) for run in runs]
        assert any(isinstance(end, Failed) for end in ends)
        assert waiting.until(Finished)
        assert start(member, user("after")).finished().text == "c" * 50
    assert all(len(last_items(run)) == 1 for run in [*runs, waiting])


def test_options_are_scored_beside_decoding() -> None:
    backend = GatedBackend(["text " * 60, OPTIONS[0]])
    with serving(backend) as member:
        alone = start(member, user("choose"), constraint=OneOf(kind="OneOf", options=OPTIONS))
        alone.finished()
    backend = GatedBackend(["text " * 60, OPTIONS[0]])
    with serving(backend) as member:
        writer = start(member, user("write"))
        writer.until(TextDelta)
        chooser = start(member, user("choose"), constraint=OneOf(kind="OneOf", options=OPTIONS))
        done = chooser.finished()
        assert done.choice is not None and done.choice.option == done.text == OPTIONS[0]
        assert writer.finished().text == "text " * 60


def test_two_choices_at_once_have_branches_enough() -> None:
    """There are branches for one choice at a time; the other waits for its turn."""
    backend = GatedBackend(["yes and more"], sequences=4 + 4 + 4 - 2)
    with serving(backend) as member:
        backend.gate.clear()
        many = [*OPTIONS, "perhaps " * 40, "maybe " * 40]
        runs = [
            start(member, user(f"choose {number}"), constraint=OneOf(kind="OneOf", options=many)) for number in range(4)
        ]
        backend.gate.set()
        assert [run.finished().text for run in runs] == ["yes and more"] * 4


@pytest.mark.parametrize("can_cut", [True, False])
def test_options_have_room_before_those_who_came_later(can_cut: bool) -> None:
    backend = GatedBackend(["text " * 60, "yes and more" * 10], cells=760, can_cut=can_cut)
    with serving(backend) as member:
        writer = start(member, user("w" * 250), tokens=400)
        writer.until(TextDelta)
        options = ["yes and more" * 10, "no " * 40, "perhaps" * 10]
        chooser = start(member, user("c" * 250), constraint=OneOf(kind="OneOf", options=options))
        assert chooser.finished().text == options[0]
        assert writer.finished().text == "text " * 60


@pytest.mark.parametrize("can_cut", [True, False])
def test_close_with_everything_in_flight(can_cut: bool) -> None:
    backend = GatedBackend(["a" * 2000], cells=900, can_cut=can_cut)
    with serving(backend) as member:
        runs = [start(member, user(f"{number}" * 200), tokens=500) for number in range(3)]
        runs.append(start(member, user("choose"), constraint=OneOf(kind="OneOf", options=OPTIONS)))
        runs += [start(member, user(f"waits {number}")) for number in range(4)]
        runs[0].until(TextDelta)
        member.close()
        for run in runs:
            ends = last_items(run)
            assert len(ends) == 1
            assert isinstance(ends[0], Finished) or ends[0].code == "shutting_down"


def test_a_mask_that_breaks_costs_nobody_else_his_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed beside a pass of all is one generation's own; it is computed again where it is needed."""
    right = Masks.compute
    broken: list[str] = []

    def compute(masks: Masks, matcher: LLMatcher, following: Sequence[int] = ()) -> None:
        if threading.current_thread().name.startswith("masks"):
            broken.append("once more")
            raise ValueError("the double was told to break")
        right(masks, matcher, following)

    monkeypatch.setattr(Masks, "compute", compute)
    backend = GatedBackend(["a" * 400, '{"thought": "x"}'])
    schema = {"type": "object", "properties": {"thought": {"type": "string"}}, "required": ["thought"]}
    with serving(backend) as member:
        plain = start(member, user("plain"))
        plain.until(TextDelta)
        run = start(member, user("json"), constraint=Json(kind="Json", schema=schema))
        assert run.finished().text == '{"thought": "x"}' and broken
        assert plain.finished().text == "a" * 400


ACTIONS = st.one_of(
    st.tuples(st.just("plain"), st.integers(0, 5), st.integers(1, 90), st.sampled_from("abc")),
    st.tuples(st.just("choice"), st.integers(0, 5), st.integers(1, 90), st.sampled_from("abc")),
    st.tuples(st.just("cancel"), st.integers(0, 11)),
    st.tuples(st.just("fail")),
    st.tuples(st.just("pass"), st.integers(1, 12)),
)


class SteppedBackend(GatedBackend):
    """Lets as many passes through as it was told to."""

    def __init__(self, replies: list[str], **options: int | bool) -> None:
        self.allowed = threading.Semaphore(0)
        self.free = True
        super().__init__(replies, **options)

    def decode(self, rows: list[Row]) -> Logits:  # type: ignore[override]
        if not self.free:
            assert self.allowed.acquire(timeout=BOUND_S)
        return super().decode(rows)

    def open(self) -> None:
        self.free = True
        self.allowed.release(1000)


REPLY = "the same reply to all, so that any order of them is right. "


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ACTIONS, min_size=1, max_size=14),
    st.booleans(),
    st.sampled_from([360, 700, 100_000]),
    st.sampled_from([0, 3000, 1 << 22]),
    st.integers(1, 4),
    st.booleans(),
)
@example(
    actions=[("plain", 5, 90, "b"), ("plain", 5, 39, "a"), ("plain", 0, 62, "b"), ("choice", 2, 87, "a")],
    can_cut=False,
    cells=360,
    budget=1 << 22,
    batch=4,
    drains=True,
)
def test_whatever_happens_every_job_ends_once_and_right(
    actions: list[tuple[object, ...]], can_cut: bool, cells: int, budget: int, batch: int, drains: bool
) -> None:
    backend = SteppedBackend([REPLY], can_cut=can_cut, cells=cells, sequences=2 * batch + 4)
    runs: list[Run] = []
    failures = 0
    with serving(backend, budget=budget, batch=batch) as member:
        backend.free = False
        for action in actions:
            match action:
                case ("plain" | "choice" as kind, int(family), int(tokens), str(client)):
                    constraint = OneOf(kind="OneOf", options=[REPLY, "no", "the other"]) if kind == "choice" else None
                    text = "shared by all " * (family % 3) + "own" * (10 * family)
                    count = max(60, tokens) if constraint else tokens
                    runs.append(start(member, user(text), tokens=count, constraint=constraint, client=client))
                case ("cancel", int(place)) if runs:
                    runs[place % len(runs)].job.cancel()
                case ("fail",):
                    failures += 1
                    backend.failures += 1
                case ("pass", int(count)):
                    backend.allowed.release(count)
        backend.open()
        if drains:
            for run in runs:
                run.until(Finished)
        member.close()
        assert not any(live.running for live in member._sequences._live.values())
        assert sorted([*member._sequences._numbers, *member._sequences._live]) == list(range(backend.facts.sequences))
        assert member._sequences._cells.free == backend._cells.free or not backend._rows
    for run in runs:
        ends = last_items(run)
        assert len(ends) == 1, ends
        end = ends[0]
        if isinstance(end, Failed):
            assert failures or (not drains and end.code == "shutting_down"), end
        else:
            assert REPLY.startswith(end.text) and run.streamed == end.text
            assert end.finish == "cancelled" or end.text == REPLY[: run.job.max_new_tokens]
            assert end.usage.completion_tokens == len(end.ids)
            assert end.finish != "cancelled" or run.job.cancelled


def test_no_more_rows_stand_than_a_generation_may_ask_for() -> None:
    """A run whose logits nobody wants, and of which another generation has stored all rows, is not skipped."""
    backend = ToyBackend(Script(["x"]))
    with serving(backend) as member:
        done = start(member, user("same " * 40)).finished()
        batch: Batch = member._batch
        ids = [*member.render(user("same " * 40)).ids]
        generation = Generation(Prepared(Job(ids, 5, lambda item: None)), backend.vocabulary, None, 4)
        slot = batch.start(generation)
        assert slot is not None and slot.sequence is not None
        batch._sequences.put_away(slot.sequence)
        slot.sequence, slot.wanted = None, 0
        batch.slots.clear()
        assert batch.return_to(slot) and batch._missing(slot) > 0
        batch.cancel(slot)
        assert done.text == "x"


def test_sampled_jobs_do_not_depend_on_their_company() -> None:
    def texts(batch: int) -> list[str]:
        with serving(GatedBackend(["?"]), batch=batch) as member:
            runs = [
                start(member, user(f"n {seed}"), tokens=12, sampling=Sampling(temperature=30.0, seed=seed))
                for seed in range(4)
            ]
            return [str(run.finished().ids) for run in runs]

    assert texts(1) == texts(4)


def test_a_new_beginning_that_several_share_is_computed_once(open_member: Open) -> None:
    member = open_member("one", "two", "three", "four", batch=4, pace_s=0.002)
    shared = Part("system", "the same long beginning " * 60)
    runs = [start(member, [shared, Part("user", f"question {name} " * 3)]) for name in "abcd"]
    done = [run.finished() for run in runs]
    assert sorted(one.text for one in done) == ["four", "one", "three", "two"]
    assert [one.usage.recomputed_from > 1000 for one in done] == [False, True, True, True]
