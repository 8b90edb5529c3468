"""What goes wrong with a server: each has a name and a sentence, at load and in the middle of a generation."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from caldrix.engine.jobs import Failed, Finished, Part, TextDelta
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Json
from tests.remote.fake_server import Body, Dialect, Reply, Script, answer, ollama, plain, running, sglang, stream, vllm
from tests.remote.jobs import Asked, load

SECRET = "sk-very-secret"


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CALDRIX_OPENAI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def not_found(body: Body) -> Reply:
    return answer({"detail": "Not Found"}, 404)


def refused(
    stack: ExitStack, dialect: Dialect, script: Script, model: str = "org/model", stall_s: float = 20.0
) -> Refused:
    root = stack.enter_context(running(dialect, script))
    with pytest.raises(Refused) as caught:
        load(f"openai:{root}/v1#{model}", stall_s)
    assert SECRET not in caught.value.message
    return caught.value


def test_nobody_answers() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(Refused, match="no server answers at") as caught:
            load(f"openai:http://127.0.0.1:{taken.getsockname()[1]}/v1#m")
    assert caught.value.code == "model_refused"


def test_an_unknown_model_is_told_with_those_there_are(stack: ExitStack) -> None:
    refusal = refused(stack, vllm, Script(), "other")
    assert (refusal.code, "org/model" in refusal.message) == ("model_not_found", True)


@pytest.mark.parametrize(
    ("dialect", "script", "part"),
    [
        (ollama, Script(), "Ollama 0.12.3 has no endpoint that tokenises"),
        (plain, Script(), "has no endpoint that tokenises"),
        (vllm, Script(routes={"/tokenize": not_found}), "does not serve /tokenize"),
        (vllm, Script(routes={"/detokenize": not_found}), "does not serve /detokenize"),
        (sglang, Script(routes={"/tokenize": not_found}), "does not serve /tokenize"),
        (vllm, Script(key="other"), "wants a key (401): set $CALDRIX_OPENAI_API_KEY"),
        (vllm, Script(routes={"/v1/models": lambda body: answer({"error": {"message": "boom"}}, 500)}), "500: boom"),
        (
            vllm,
            Script(routes={"/v1/models": lambda body: answer({}, 307, location="http://other.example/")}),
            "redirects to 'http://other.example/', which is not followed",
        ),
        (vllm, Script(routes={"/v1/models": lambda body: Reply(chunks=(b"<html>",))}), "what is not JSON"),
        (vllm, Script(routes={"/v1/completions": lambda body: answer({"error": "no GPU"}, 500)}), "500: no GPU"),
        (
            vllm,
            Script(routes={"/v1/models": lambda body: answer({"data": [{"id": "org/model"}]})}),
            "does not tell the window",
        ),
    ],
)
def test_a_server_that_cannot_serve_a_member_is_refused_by_name(
    stack: ExitStack, dialect: Dialect, script: Script, part: str
) -> None:
    refusal = refused(stack, dialect, script, "gpt" if dialect is plain else "org/model")
    assert refusal.code == "model_refused"
    assert part in refusal.message


def test_a_server_that_stays_silent_at_load_is_given_up(stack: ExitStack) -> None:
    never = threading.Event()
    stack.callback(never.set)
    script = Script(routes={"/v1/models": lambda body: Reply(chunks=(never,))})
    assert "sent nothing for 0.3 s" in refused(stack, vllm, script, stall_s=0.3).message


def test_a_key_is_sent_and_never_shown(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    monkeypatch.setenv("CALDRIX_OPENAI_API_KEY", SECRET)
    root = stack.enter_context(running(vllm, Script(key=SECRET)))
    member = load(f"openai:{root}/v1#org/model")
    stack.callback(member.close)
    assert SECRET not in member.status("r").model_dump_json()
    assert Asked(member).finished().text == "hello"
    assert "refuses the key that was sent" in refused(stack, vllm, Script(key="different")).message
    boom = Script(routes={"/v1/models": lambda body: answer({"error": f"key {SECRET} is bad"}, 500)})
    assert "key … is bad" in refused(stack, vllm, boom).message


class Turning:
    """Answers as it should until it is told how to answer otherwise."""

    def __init__(self, stack: ExitStack, stall_s: float = 20.0, **flags: Any) -> None:
        self.other: Callable[[Body], Reply] | None = None
        self.script = Script()
        self.script.routes["/v1/completions"] = self._completion
        root = stack.enter_context(running(vllm, self.script))
        self.member = load(f"openai:{root}/v1#org/model", stall_s, **flags)
        stack.callback(self.member.close)

    def _completion(self, body: Body) -> Reply:
        if self.other is not None:
            return self.other(body)
        return vllm(self.script, "/v1/completions", body)


def said(text: str) -> Body:
    return {"choices": [{"index": 0, "text": text, "finish_reason": None, "token_ids": [104]}]}


BROKEN = Reply(kind="text/event-stream", chunks=(b"data: {\n\n",))
HALF = stream(said("h"), done=False)


@pytest.mark.parametrize(
    ("reply", "code", "part"),
    [
        (answer({"error": {"message": "out of memory"}}, 500), "engine_failed", "500: out of memory"),
        (answer({"error": "busy"}, 429, retry_after="7"), "engine_failed", "try again in 7 s"),
        (answer({"error": "busy"}, 429), "engine_failed", "try again later"),
        (answer({}, 401), "engine_failed", "wants a key"),
        (answer({"error": {"message": "bad top_p"}}, 400), "bad_request", "bad top_p"),
        (HALF, "engine_failed", "ended its answer early"),
        (stream(said("h")), "engine_failed", "ended its answer early"),
        (BROKEN, "engine_failed", "no event stream"),
        (Reply(kind="text/html", chunks=(b"<html>\n",)), "engine_failed", "no event stream"),
        (stream(said("h"), {"error": {"message": "engine died"}}), "engine_failed", "broke off: engine died"),
        (stream({"choices": [{"text": "", "finish_reason": "abort", "token_ids": []}]}), "engine_failed", "abort"),
        (stream({"choices": [{"text": "a", "token_ids": ["x"]}]}), "engine_failed", "token ids"),
        (
            Reply(kind="text/event-stream", chunks=(b"data: x",), headers=(("content_length", "99"),)),
            "engine_failed",
            "the connection to",
        ),
    ],
)
def test_a_generation_that_breaks_says_how(stack: ExitStack, reply: Reply, code: str, part: str) -> None:
    turning = Turning(stack)
    turning.other = lambda body: reply
    failed = Asked(turning.member).failed()
    assert failed.code == code
    assert part in failed.message
    turning.other = None
    assert Asked(turning.member).finished().text == "hello", "and the member still serves"


def test_a_refused_schema_is_an_invalid_constraint(stack: ExitStack) -> None:
    turning = Turning(stack)
    turning.other = lambda body: answer({"error": {"message": "unsupported keyword"}}, 400)
    failed = Asked(turning.member, constraint=Json(kind="Json", schema_={})).failed()
    assert (failed.code, "unsupported keyword" in failed.message) == ("constraint_invalid", True)


def test_a_stall_is_given_up(stack: ExitStack) -> None:
    turning = Turning(stack, stall_s=1.0)
    never = threading.Event()
    stack.callback(never.set)
    turning.other = lambda body: Reply(kind="text/event-stream", chunks=(*stream(said("h"), done=False).chunks, never))
    failed = Asked(turning.member).failed()
    assert (failed.code, "sent nothing for 1 s" in failed.message) == ("engine_failed", True)


class Endless:
    """A stream that says a word, then waits until it is let go, then goes on writing."""

    def __init__(self, stack: ExitStack) -> None:
        self.go = threading.Event()
        stack.callback(self.go.set)

    def __call__(self, body: Body) -> Reply:
        first = stream(said("h"), done=False).chunks
        return Reply(kind="text/event-stream", chunks=(*first, self.go, *first * 10_000))


def test_a_cancel_closes_the_stream(stack: ExitStack) -> None:
    turning = Turning(stack)
    turning.other = endless = Endless(stack)
    asked = Asked(turning.member)
    while not isinstance(asked.next(), TextDelta):
        pass
    assert turning.member.position(asked.job) == 0
    asked.job.cancel()
    done = asked.finished()
    assert (done.finish, done.text) == ("cancelled", "h")
    endless.go.set()
    assert turning.script.gone.wait(20), "the server noticed that nobody reads any more"
    assert turning.member.position(asked.job) is None


def test_what_does_not_fit_the_batch_waits_in_turn(stack: ExitStack) -> None:
    turning = Turning(stack, max_batch=1)
    turning.other = Endless(stack)
    first = Asked(turning.member, client="a")
    while not isinstance(first.next(), TextDelta):
        pass
    second, third, other = (Asked(turning.member, client=name) for name in ("a", "a", "b"))
    places = [turning.member.position(asked.job) for asked in (first, second, other, third)]
    assert places == [0, 2, 1, 3], "b is before the second of a"
    queue = turning.member.status("r").queue
    assert (queue.running, queue.waiting) == (1, 3)
    third.job.cancel()
    assert third.finished().finish == "cancelled"
    turning.other = None
    first.job.cancel()
    assert first.finished().finish == "cancelled"
    assert [second.finished().text, other.finished().text] == ["hello", "hello"]


def test_closing_ends_what_runs_and_fails_what_waits(stack: ExitStack) -> None:
    turning = Turning(stack, max_batch=1)
    turning.other = Endless(stack)
    running_one = Asked(turning.member)
    while not isinstance(running_one.next(), TextDelta):
        pass
    waiting = Asked(turning.member)
    turning.member.close()
    assert isinstance(running_one.last(), Finished)
    assert waiting.failed() == Failed("shutting_down", waiting.items[-1].message)  # type: ignore[union-attr]
    with pytest.raises(Refused):
        Asked(turning.member)
    turning.member.close()


def test_a_server_that_goes_away_between_two_requests_is_named(stack: ExitStack) -> None:
    script = Script()
    with running(vllm, script) as root:
        member = load(f"openai:{root}/v1#org/model")
        stack.callback(member.close)
        rendered = member.render([])
    assert rendered.ids
    with pytest.raises(Refused, match="no server answers at") as caught:
        member.render([Part("user", "a text that was not counted before")])
    assert caught.value.code == "engine_failed"
