"""vLLM and SGLang as doubles on a real socket: what is found out at load, what is asked, what comes of the answers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from caldrix.engine.jobs import Part, Prefill
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Constraint, Json, Lark, OneOf, Regex, Sampling
from caldrix.remote.member import RemoteMember
from tests.remote.fake_server import Dialect, Script, chat, encode, running, sglang, vllm
from tests.remote.jobs import HELLO, Asked, load

NAME = Json(kind="Json", schema_={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})
BOTH = pytest.mark.parametrize(
    ("dialect", "fields", "path"),
    [
        (vllm, ("structured_outputs",), "/v1/completions"),
        (vllm, ("guided_json", "guided_regex"), "/v1/completions"),
        (sglang, ("json_schema", "regex"), "/generate"),
    ],
    ids=["vllm", "older-vllm", "sglang"],
)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def opened(stack: ExitStack, dialect: Dialect, script: Script, **flags: int) -> RemoteMember:
    root = stack.enter_context(running(dialect, script))
    member = load(f"openai:{root}/v1#org/model", **flags)
    stack.callback(member.close)
    return member


@BOTH
def test_what_a_server_can_is_found_out(stack: ExitStack, dialect: Dialect, fields: tuple[str, ...], path: str) -> None:
    member = opened(stack, dialect, Script(fields=fields)).status("r")
    assert (member.lane, member.window, member.footprint_bytes, member.context_budget_bytes) == ("remote", 2048, 0, 0)
    assert member.constraints == ["OneOf", "Json", "Regex"]
    assert member.template.source == "server"
    assert "org/model" in member.notes[0]
    assert any(
        "Json constraints are enforced by the server, by its field " + fields[0] in note for note in member.notes
    )
    assert any("Lark" in note for note in member.notes)


@BOTH
def test_a_prompt_is_what_the_server_makes_of_the_chat(
    stack: ExitStack, dialect: Dialect, fields: tuple[str, ...], path: str
) -> None:
    member = opened(stack, dialect, Script(fields=fields))
    parts = [Part("system", " é "), Part("user", "a\n"), Part("assistant", "b"), Part("user", "c {}")]
    rendered = member.render(parts)
    assert list(rendered.ids) == encode(chat([{"role": part.role, "content": part.text} for part in parts]))
    assert rendered.counts == (4, 2, 1, 4)


@BOTH
def test_markup_in_a_text_stays_text(stack: ExitStack, dialect: Dialect, fields: tuple[str, ...], path: str) -> None:
    member = opened(stack, dialect, Script(fields=fields))
    rendered = member.render([Part("user", "<|im_end|>")])
    turn = encode("<|im_start|>user\n")
    assert rendered.ids[: len(turn) + 10] == (*turn, *b"<|im_end|>")
    assert rendered.counts == (10,)


@BOTH
def test_an_edit_costs_only_the_changed_text(
    stack: ExitStack, dialect: Dialect, fields: tuple[str, ...], path: str
) -> None:
    script = Script(fields=fields)
    member = opened(stack, dialect, script)
    parts = [Part("system", "one"), Part("user", "two"), Part("assistant", "three"), Part("user", "four")]
    member.render(parts)
    script.asked.clear()
    member.render(parts)
    assert script.asked == []
    member.render([*parts[:3], Part("user", "five")])
    assert [body["prompt"] for _, body in script.asked] == ["user\nfive", "five"]


@BOTH
def test_plain_text_streams_with_its_ids_and_counts(
    stack: ExitStack, dialect: Dialect, fields: tuple[str, ...], path: str
) -> None:
    script = Script(["hello wörld"], fields=fields)
    member = opened(stack, dialect, script)
    script.said = 0
    asked = Asked(member)
    done = asked.finished()
    assert (done.finish, done.text) == ("stop", "hello wörld")
    prompt = len(asked.job.ids)
    assert done.usage.prompt_tokens == prompt
    assert done.usage.recomputed_from == (5 if dialect is vllm else 3)
    assert done.usage.completion_tokens == len("hello wörld".encode())
    assert sum(delta.tokens for delta in asked.deltas()) == done.usage.completion_tokens
    prefills = [item for item in asked.items if isinstance(item, Prefill)]
    assert [prefills[0].done, prefills[-1].done] == [0, prompt]
    assert len(asked.deltas()) > 5
    again = Asked(member, [*HELLO, Part("assistant", done.text, done.ids), Part("user", "more")]).job
    assert tuple(again.ids[: prompt + len(done.ids)]) == (*asked.job.ids, *done.ids)


def test_a_server_that_tells_no_ids_is_counted_by_its_own_numbers(stack: ExitStack) -> None:
    member = opened(stack, vllm, Script(["héllo"], ids=False))
    asked = Asked(member)
    done = asked.finished()
    assert done.ids == tuple("héllo".encode())
    assert done.usage.completion_tokens == 6
    assert sum(delta.tokens for delta in asked.deltas()) == 6


@BOTH
def test_length_is_told_and_cut(stack: ExitStack, dialect: Dialect, fields: tuple[str, ...], path: str) -> None:
    done = Asked(opened(stack, dialect, Script(["hello"], fields=fields)), limit=3).finished()
    assert (done.finish, done.text, done.usage.completion_tokens) == ("length", "hel", 3)


@BOTH
def test_json_comes_in_our_style_while_it_streams(
    stack: ExitStack, dialect: Dialect, fields: tuple[str, ...], path: str
) -> None:
    script = Script(['\n{ "name" :"a  b"\n}\n'], fields=fields)
    member = opened(stack, dialect, script)
    asked = Asked(member, constraint=NAME)
    done = asked.finished()
    assert done.text == '{"name": "a  b"}'
    assert len(asked.deltas()) > 3
    assert done.ids == tuple(done.text.encode())
    body = script.bodies(path)[-1]
    sent = body["sampling_params"]["json_schema"] if dialect is sglang else None
    sent = json.loads(sent) if sent else body.get("guided_json") or body["structured_outputs"]["json"]
    assert sent == NAME.schema_


@BOTH
def test_a_server_that_does_not_keep_to_a_schema_is_found_out(
    stack: ExitStack, dialect: Dialect, fields: tuple[str, ...], path: str
) -> None:
    failed = Asked(opened(stack, dialect, Script(['{"nome": 1}'], fields=fields)), constraint=NAME).failed()
    assert failed.code == "engine_failed"
    assert "did not keep to the Json constraint" in failed.message


@BOTH
def test_a_pattern_is_sent_and_checked(stack: ExitStack, dialect: Dialect, fields: tuple[str, ...], path: str) -> None:
    script = Script(["a1", "b"], fields=fields)
    member = opened(stack, dialect, script)
    script.said = 0
    pattern = Regex(kind="Regex", pattern="[ab][0-9]")
    assert Asked(member, constraint=pattern).finished().text == "a1"
    assert Asked(member, constraint=pattern).failed().code == "engine_failed"


@BOTH
@pytest.mark.parametrize(
    ("constraint", "code"),
    [
        (Lark(kind="Lark", grammar='start: "a"'), "constraint_unsupported"),
        (Json(kind="Json", schema_={"type": "nonsense"}), "constraint_invalid"),
        (Regex(kind="Regex", pattern="("), "constraint_invalid"),
        (OneOf(kind="OneOf", options=[]), "constraint_invalid"),
        (OneOf(kind="OneOf", options=["x" * 65]), "constraint_invalid"),
    ],
)
def test_a_constraint_that_cannot_be_served_is_refused_by_name(
    stack: ExitStack, dialect: Dialect, fields: tuple[str, ...], path: str, constraint: Constraint, code: str
) -> None:
    member = opened(stack, dialect, Script(fields=fields))
    with pytest.raises(Refused) as refused:
        Asked(member, constraint=constraint)
    assert refused.value.code == code


@BOTH
def test_options_get_their_exact_scores(stack: ExitStack, dialect: Dialect, fields: tuple[str, ...], path: str) -> None:
    script = Script(fields=fields)
    member = opened(stack, dialect, script)
    script.asked.clear()
    done = Asked(member, constraint=OneOf(kind="OneOf", options=["ab", "b", "B"])).finished()
    assert done.choice is not None
    assert [score.logprob for score in done.choice.scores] == pytest.approx([-1.95, -0.98, -0.66])
    assert (done.text, done.choice.option, done.ids) == ("B", "B", (66,))
    shares = [math.exp(score.logprob) for score in done.choice.scores]
    assert [score.probability for score in done.choice.scores] == pytest.approx([x / sum(shares) for x in shares])
    assert len(script.bodies(path)) == 1, "all options go in one request"


def test_without_scores_a_choice_is_refused_by_name(stack: ExitStack) -> None:
    script = Script(routes={})
    script.routes["/v1/completions"] = lambda body: (
        vllm(Script(), "/nothing", {}) if "prompt_logprobs" in body else vllm(script, "/v1/completions", body)
    )
    member = opened(stack, vllm, script)
    assert "OneOf" not in member.status("r").constraints
    assert any("OneOf constraints are refused" in note for note in member.status("r").notes)
    with pytest.raises(Refused) as refused:
        Asked(member, constraint=OneOf(kind="OneOf", options=["a", "b"]))
    assert refused.value.code == "constraint_unsupported"


@BOTH
@pytest.mark.parametrize("top", [0, 2])
def test_log_probabilities_have_one_entry_for_each_token(
    stack: ExitStack, dialect: Dialect, fields: tuple[str, ...], path: str, top: int
) -> None:
    done = Asked(opened(stack, dialect, Script(["hi"], fields=fields)), logprobs=top).finished()
    assert done.logprobs is not None
    assert [(entry.token, entry.text, entry.logprob) for entry in done.logprobs] == [(104, "h", -0.5), (105, "i", -0.5)]
    wanted = [(104, "h", -0.5), (65, "A", -2.5)] if top else []
    assert [(entry.token, entry.text, entry.logprob) for entry in done.logprobs[0].top] == wanted


@BOTH
def test_a_choice_has_log_probabilities_of_its_tokens(
    stack: ExitStack, dialect: Dialect, fields: tuple[str, ...], path: str
) -> None:
    member = opened(stack, dialect, Script(fields=fields))
    done = Asked(member, constraint=OneOf(kind="OneOf", options=["AB", "xyz"]), logprobs=1).finished()
    assert done.logprobs is not None
    assert [(entry.token, entry.text, entry.logprob) for entry in done.logprobs] == [(65, "A", -0.65), (66, "B", -0.66)]
    assert [[(other.token, other.logprob) for other in entry.top] for entry in done.logprobs] == [[(0, -0.1)]] * 2


def test_sampling_goes_field_by_field_to_vllm(stack: ExitStack) -> None:
    script = Script()
    member = opened(stack, vllm, script)
    sampling = Sampling(temperature=0.5, top_p=0.9, top_k=7, min_p=0.1, repeat_penalty=1.1, seed=3)
    Asked(member, sampling=sampling).finished()
    sent = script.bodies("/v1/completions")[-1]
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed")
    assert [sent[name] for name in names] == [0.5, 0.9, 7, 0.1, 1.1, 3]
    Asked(member).finished()
    assert script.bodies("/v1/completions")[-1]["top_k"] == -1


@pytest.mark.parametrize(
    ("dialect", "sampling", "field"),
    [
        (vllm, Sampling(seed=2**63), "seed"),
        (sglang, Sampling(seed=1), "seed"),
        (sglang, Sampling(repeat_penalty=3.0), "repeat_penalty"),
    ],
)
def test_a_sampling_field_is_refused_rather_than_dropped(
    stack: ExitStack, dialect: Dialect, sampling: Sampling, field: str
) -> None:
    member = opened(stack, dialect, Script())
    with pytest.raises(Refused, match=f"sampling.{field}") as refused:
        Asked(member, sampling=sampling)
    assert refused.value.code == "bad_request"


def test_without_a_field_for_schemas_an_answer_is_asked_for_again(stack: ExitStack) -> None:
    script = Script(["I think {", '{"nome": 1}', '```json\n{"name":"x"}\n```'], fields=())
    member = opened(stack, vllm, script)
    assert member.status("r").constraints == ["OneOf", "Json"]
    assert any("asked for again up to twice" in note for note in member.status("r").notes)
    script.said = 0
    asked = Asked(member, constraint=NAME)
    done = asked.finished()
    assert done.text == '{"name": "x"}'
    assert [delta.text for delta in asked.deltas()] == [done.text], "nothing was shown before it was right"
    assert done.usage.completion_tokens == sum(len(text.encode()) for text in script.says)
    assert done.usage.prompt_tokens == len(asked.job.ids)
    last = bytes(token if token < 256 else 32 for token in script.bodies("/v1/completions")[-1]["prompt"]).decode()
    assert "'name' is a required property" in last
    assert '"required": ["name"]' in last


def test_after_two_more_tries_it_is_given_up_with_the_reason(stack: ExitStack) -> None:
    script = Script(["no"], fields=())
    member = opened(stack, vllm, script)
    before = len(script.bodies("/v1/completions"))
    failed = Asked(member, constraint=NAME).failed()
    assert failed.code == "engine_failed"
    assert "3 times" in failed.message
    assert len(script.bodies("/v1/completions")) - before == 3


def test_a_smaller_window_can_be_asked_for(stack: ExitStack) -> None:
    member = opened(stack, vllm, Script(), window=90)
    assert member.status("r").window == 90
    with pytest.raises(Refused) as refused:
        Asked(member, [Part("user", "x" * 90)])
    assert refused.value.code == "window_exceeded"


def test_a_larger_window_than_the_servers_is_said(stack: ExitStack) -> None:
    status = opened(stack, vllm, Script(), window=4096).status("r")
    assert status.window == 2048
    assert any("--window 4096" in note for note in status.notes)
