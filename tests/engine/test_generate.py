"""Generations over the toy backend: every end, every count, and rows that are never computed twice."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caldrix.engine.backend import MIN_PASS_ROWS
from caldrix.engine.jobs import Failed, Job, Part, Prefill, TextDelta
from caldrix.engine.member import LoadedMember, Serving
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Json, Lark, OneOf, Regex, Sampling
from tests.doubles.toy_backend import Script, ToyBackend
from tests.engine.conftest import start

Open = Callable[..., LoadedMember]
ASK = [Part("user", "a question that is long enough to be worth a prefix")]
FINAL = {
    "type": "object",
    "properties": {"thought": {"type": "string", "maxLength": 600}, "final": {"type": "string"}},
    "required": ["thought", "final"],
    "additionalProperties": False,
}


def test_a_plain_generation_ends_with_its_turn(open_member: Open) -> None:
    run = start(open_member("hello"), ASK)
    done = run.finished()
    assert (done.text, done.finish, done.usage.completion_tokens, done.usage.forced_tokens) == ("hello", "stop", 5, 0)
    assert done.ids == tuple(b"hello") and run.streamed == "hello"


def test_length_cuts_and_says_so(open_member: Open) -> None:
    done = start(open_member("hello"), ASK, tokens=3).finished()
    assert (done.text, done.finish) == ("hel", "length")


def test_whole_characters_only(open_member: Open) -> None:
    run = start(open_member("a😸é"), ASK)
    assert run.finished().text == run.streamed == "a😸é"
    assert [item.text for item in run.items if isinstance(item, TextDelta)] == ["a", "😸", "é"]


def test_an_unfinished_tail_is_flushed_once(open_member: Open) -> None:
    run = start(open_member("a😸"), ASK, tokens=3)
    assert run.finished().text == run.streamed == "a\ufffd"
    assert sum(item.tokens for item in run.items if isinstance(item, TextDelta)) == 3


def test_forced_tokens_are_counted_and_the_json_is_styled(open_member: Open) -> None:
    run = start(open_member('{"thought": "t", "final": "f"}'), ASK, constraint=Json(kind="Json", schema=FINAL))
    done = run.finished()
    assert done.text == '{"thought": "t", "final": "f"}' and done.finish == "stop"
    assert 0 < done.usage.forced_tokens < done.usage.completion_tokens == len(done.text)
    assert sum(item.forced for item in run.items if isinstance(item, TextDelta)) == done.usage.forced_tokens


@pytest.mark.parametrize(
    "wish", ['{"thought": "a', "<|im_end|>", '{"thought": "<|im_end|>", "final": "<|im_start|>"}', "\n{}"]
)
def test_the_constraint_holds_whatever_the_model_wants(open_member: Open, wish: str) -> None:
    """Its end of turn is its second wish everywhere, also in the middle of a string."""
    done = start(open_member(wish), ASK, constraint=Json(kind="Json", schema=FINAL)).finished()
    assert set(json.loads(done.text)) == {"thought", "final"} and done.text == done.text.strip()
    assert all(token < 256 for token in done.ids)


def test_length_under_a_constraint(open_member: Open) -> None:
    done = start(open_member('{"thought": "long'), ASK, tokens=8, constraint=Json(kind="Json", schema=FINAL)).finished()
    assert (done.finish, done.usage.completion_tokens) == ("length", 8)


@pytest.mark.parametrize(
    ("constraint", "wish", "text"),
    [
        (Regex(kind="Regex", pattern="[0-9]{3}"), "123456", "123"),
        (Regex(kind="Regex", pattern="a*"), "aaa", "aaa"),
        (Lark(kind="Lark", grammar='start: "yes" | "no"'), "yes", "yes"),
    ],
)
def test_other_grammars(open_member: Open, constraint: Regex | Lark, wish: str, text: str) -> None:
    done = start(open_member(wish), ASK, constraint=constraint).finished()
    assert (done.text, done.finish) == (text, "stop")


def test_one_of_scores_every_option(open_member: Open) -> None:
    options = ["answer", "edit", "edits", "plan"]
    run = start(open_member("edit"), ASK, tokens=8, constraint=OneOf(kind="OneOf", options=options), logprobs=1)
    done = run.finished()
    assert done.choice is not None and done.choice.option == done.text == run.streamed == "edit"
    assert [score.option for score in done.choice.scores] == options
    assert sum(score.probability for score in done.choice.scores) == pytest.approx(1)
    assert done.logprobs is not None
    assert sum(entry.logprob for entry in done.logprobs) == pytest.approx(done.choice.scores[1].logprob)


def test_log_probabilities_for_each_token(open_member: Open) -> None:
    done = start(
        open_member('{"thought": "t", "final": "f"}'), ASK, constraint=Json(kind="Json", schema=FINAL), logprobs=2
    ).finished()
    assert done.logprobs is not None and len(done.logprobs) == done.usage.completion_tokens
    assert "".join(entry.text for entry in done.logprobs) == done.text
    assert sum(entry.forced for entry in done.logprobs) == done.usage.forced_tokens
    assert all(len(entry.top) == 2 and entry.logprob <= 0 for entry in done.logprobs)


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (Json(kind="Json", schema={"type": "nope"}), "type"),
        (
            Json(kind="Json", schema={"properties": {"a": {"items": {"format": "zzz", "type": "string"}}}}),
            "properties.a.items",
        ),
        (Regex(kind="Regex", pattern="("), "Regex"),
        (Lark(kind="Lark", grammar="start: missing"), "missing"),
        (OneOf(kind="OneOf", options=[]), "option"),
        (OneOf(kind="OneOf", options=["a", "a"]), "twice"),
        (OneOf(kind="OneOf", options=["x" * 500]), "500 tokens"),
    ],
)
def test_a_bad_constraint_is_named(open_member: Open, constraint: Json | Regex | Lark | OneOf, words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        start(open_member(""), ASK, constraint=constraint)
    assert refused.value.code == "constraint_invalid"


def test_a_prompt_beyond_the_window_is_refused_with_numbers(open_member: Open) -> None:
    with pytest.raises(Refused, match="window 100") as refused:
        start(open_member("", window=100), [Part("user", "x" * 200)])
    assert refused.value.code == "window_exceeded"


def test_a_second_prompt_resumes_the_first(open_member: Open) -> None:
    member = open_member("one", "two")
    first = start(member, ASK).finished()
    member.remember(first.text, first.ids)
    more = [*ASK, Part("assistant", first.text), Part("user", "and then? " * 3)]
    second = start(member, more).finished()
    assert first.usage.recomputed_from == 0
    assert second.usage.recomputed_from >= first.usage.prompt_tokens + len(first.ids) - 1


def test_the_same_prompt_computes_one_pass_of_its_tail(open_member: Open) -> None:
    member = open_member("one")
    first = start(member, ASK).finished()
    again = start(member, ASK).finished()
    assert again.usage.recomputed_from == first.usage.prompt_tokens - MIN_PASS_ROWS


def test_two_conversations_do_not_evict_each_other(open_member: Open) -> None:
    member = open_member("x")
    shared = Part("system", "shared " * 20)
    one, two = [shared, Part("user", "one " * 80)], [shared, Part("user", "two " * 80)]
    for parts in (one, two, one, two):
        last = start(member, parts).finished()
    assert last.usage.recomputed_from == last.usage.prompt_tokens - MIN_PASS_ROWS
    status = member.status("m")
    assert status.store.entries >= 1 and status.store.hits == 3 and status.store.misses == 1


def test_without_a_budget_only_the_live_rows_are_resumed(open_member: Open) -> None:
    member = open_member("x", budget=0)
    one, two = [Part("user", "1" * 400)], [Part("user", "2" * 400)]
    assert [start(member, parts).finished().usage.recomputed_from > 40 for parts in (one, one, two, one)] == [
        False,
        True,
        False,
        False,
    ]


def test_a_model_that_cannot_cut_is_served_by_whole_snapshots(open_member: Open) -> None:
    member = open_member("same", can_cut=False)
    texts = [start(member, ASK).finished().text for _ in range(3)]
    assert texts == ["same"] * 3


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=8),
    st.booleans(),
    st.sampled_from([0, 700, 1 << 20]),
)
def test_resumed_rows_are_the_rows_of_a_cold_run(prompts: list[tuple[int, int]], can_cut: bool, budget: int) -> None:
    """Whatever was asked before, the rows that stand after a prefill are the prompt's own."""
    backend = ToyBackend(Script(["ok"]), can_cut=can_cut)
    member = LoadedMember(backend, Serving(budget, 1))
    try:
        for kind, length in prompts:
            parts = [Part("system", "abc"[kind] * 150), Part("user", "d" * (length * 90))]
            run = start(member, parts, tokens=2)
            assert run.finished().text == "ok"
            assert tuple(run.job.ids) in {tuple(rows[: len(run.job.ids)]) for rows in backend._rows.values()}
    finally:
        member.close()


def test_prefill_reports_its_rows_in_order(open_member: Open) -> None:
    run = start(open_member("x"), [Part("user", "word " * 400)])
    run.finished()
    done = [item.done for item in run.prefills]
    assert done == sorted(done) and done[-1] == run.prefills[0].total == len(run.job.ids) and len(done) > 2


def test_a_cancel_in_prefill_keeps_the_rows_done(open_member: Open) -> None:
    member = open_member("x", pace_s=0.005)
    parts = [Part("user", "word " * 1000)]
    run = start(member, parts)
    run.until(Prefill)
    run.until(Prefill)
    run.job.cancel()
    done = run.finished()
    assert (done.finish, done.text) == ("cancelled", "")
    assert start(member, parts).finished().usage.recomputed_from > 0


def test_a_cancel_in_decode_ends_with_the_text_so_far(open_member: Open) -> None:
    run = start(open_member("y" * 5000, pace_s=0.002), ASK, tokens=5000)
    run.until(TextDelta)
    run.job.cancel()
    done = run.finished()
    assert done.finish == "cancelled" and done.text == run.streamed and 0 < len(done.text) < 5000


def test_waiting_jobs_are_served_in_order_and_cancelled_at_once(open_member: Open) -> None:
    member = open_member("z" * 200, pace_s=0.002)
    running = start(member, ASK)
    running.until(TextDelta)
    first, second = start(member, ASK), start(member, ASK)
    assert [member.position(run.job) for run in (running, first, second)] == [0, 1, 2]
    assert member.status("m").queue.waiting == 2
    second.job.cancel()
    assert second.finished().finish == "cancelled"
    assert member.position(running.job) == 0, "the waiting job was answered while another ran"
    assert running.finished().finish == first.finished().finish == "stop"
    assert member.position(first.job) is None


def test_close_answers_every_job(open_member: Open) -> None:
    member = open_member("z" * 2000, pace_s=0.002)
    running = start(member, ASK, tokens=2000)
    running.until(TextDelta)
    waiting = start(member, ASK)
    member.close()
    assert running.finished().finish == "cancelled"
    last = waiting.until(Failed)
    assert isinstance(last, Failed) and last.code == "shutting_down"


def test_an_engine_failure_is_one_answer_and_the_member_lives() -> None:
    backend = ToyBackend(Script(["fine"]))
    member = LoadedMember(backend, Serving(1 << 20, 1))
    try:
        backend.failures = 1
        broken = start(member, ASK).until(Failed)
        assert isinstance(broken, Failed) and broken.code == "engine_failed" and "told to fail" in broken.message
        assert start(member, ASK).finished().text == "fine"
    finally:
        member.close()


def test_same_seed_same_text(open_member: Open) -> None:
    member = open_member("?")
    sampling = [Sampling(temperature=50.0, seed=seed) for seed in (1, 1, 2)]
    texts = [start(member, ASK, tokens=8, sampling=one).finished().ids for one in sampling]
    assert texts[0] == texts[1] != texts[2]


def test_submit_after_close_is_answered() -> None:
    member = LoadedMember(ToyBackend(Script(["x"])), Serving(0, 1))
    member.close()
    answers: list[object] = []
    member._worker.submit(member._prepare(Job([1], 1, answers.append)))
    assert isinstance(answers[0], Failed)


def test_thousands_of_options_and_long_ones_can_be_cancelled(open_member: Open) -> None:
    options = [f"option {number}" for number in range(2000)] + ["x" * 3000]
    run = start(open_member("no", pace_s=0.005), ASK, tokens=4000, constraint=OneOf(kind="OneOf", options=options))
    while not run.prefills or run.prefills[-1].done < run.prefills[-1].total:
        run.until(Prefill)
    run.until(Prefill)
    run.job.cancel()
    done = run.finished()
    assert (done.finish, done.text, done.choice) == ("cancelled", "", None)


def test_an_option_longer_than_a_pass_is_scored_whole(open_member: Open) -> None:
    """Its every token but the one that the script wants has the same slope of logits, so its share is next to none."""
    options = ["yes" * 200, "no"]
    done = start(
        open_member("yes" * 200), ASK, tokens=800, constraint=OneOf(kind="OneOf", options=options), logprobs=0
    ).finished()
    assert done.choice is not None and done.choice.option == options[0] and done.logprobs is not None
    assert [token.text for token in done.logprobs] == list(options[0])
    assert done.choice.scores[0].logprob == pytest.approx(sum(token.logprob for token in done.logprobs))


@pytest.mark.parametrize("logprobs", [None, 1])
def test_a_long_forced_run_comes_in_passes_and_can_be_cancelled(open_member: Open, logprobs: int | None) -> None:
    constraint = Json(kind="Json", schema={"type": "array", "prefixItems": [{"const": "x" * 1000}, {"type": "string"}]})
    run = start(open_member("", pace_s=0.01), ASK, tokens=5000, constraint=constraint, logprobs=logprobs)
    first = run.until(TextDelta)
    assert isinstance(first, TextDelta) and first.tokens <= 128
    run.job.cancel()
    done = run.finished()
    assert done.finish == "cancelled" and done.text == run.streamed and len(done.ids) < 1000
    assert done.logprobs is None if logprobs is None else [token.token for token in done.logprobs or []] == [*done.ids]


def test_log_probabilities_line_up_over_a_long_forced_run(open_member: Open) -> None:
    constraint = Json(kind="Json", schema={"const": "x" * 300})
    done = start(open_member(""), ASK, tokens=200, constraint=constraint, logprobs=0).finished()
    assert done.finish == "length" and done.text == '"' + "x" * 199
    assert [token.token for token in done.logprobs or []] == [*done.ids]
    assert done.usage.forced_tokens == sum(token.forced for token in done.logprobs or []) == 200


def test_a_stored_prefix_that_cannot_be_loaded_costs_a_prefill() -> None:
    backend = ToyBackend(Script(["a", "b", "c", "d"]))
    member = LoadedMember(backend, Serving(1 << 24, 1))
    one, other = [Part("user", "1" * 400)], [Part("user", "2" * 400)]
    start(member, one).finished()
    start(member, other).finished()
    backend.broken_snapshots = True
    lost = start(member, one).finished()
    assert (lost.text, lost.usage.recomputed_from) == ("c", 0)
    backend.broken_snapshots = False
    again = start(member, one).finished()
    assert again.text == "d" and again.usage.recomputed_from > 0
    member.close()


def test_a_failure_while_options_are_scored_leaves_no_stale_rows() -> None:
    backend = ToyBackend(Script(["yes", "yes"]))
    member = LoadedMember(backend, Serving(0, 1))
    constraint = OneOf(kind="OneOf", options=["yes", "no"])
    start(member, ASK, constraint=constraint).finished()
    backend.failures = 1
    failed = start(member, ASK, constraint=constraint).until(Failed)
    assert isinstance(failed, Failed) and failed.code == "engine_failed"
    again = start(member, ASK, constraint=constraint).finished()
    assert again.choice is not None and again.choice.option == "yes" and again.usage.recomputed_from == 0
    member.close()
