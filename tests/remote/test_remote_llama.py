"""A real llama.cpp server behind a remote member, alone and behind the real daemon, socket and frames."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest

from caldrix.client.client import PoolClient
from caldrix.engine.api import ServingFlags
from caldrix.engine.jobs import Part, Prefill, TextDelta
from caldrix.engine.member import load_member
from caldrix.models.refs import resolve
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Append, Delta, Done, Json, Lark, OneOf, Regex, Sampling, Segment
from caldrix.remote.member import RemoteMember
from tests.remote.fake_server import Body, Reply, Script, answer, running
from tests.remote.jobs import BOUND_S, HELLO, Asked, load

pytest.importorskip("xllamacpp", reason="xllamacpp, which brings a llama.cpp server, is not installed")
pytestmark = pytest.mark.model

ROOT = Path(__file__).parent.parent.parent
MODEL = "smollm2-instruct"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "size": {"enum": [1, 2, 3]}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
LONG = (Part("user", "Count from one to one thousand, in words, each on its own line."),)


@dataclass
class Llama:
    process: subprocess.Popen[str]
    root: str

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(BOUND_S)

    def busy(self) -> bool:
        with urllib.request.urlopen(f"{self.root}/slots", timeout=BOUND_S) as answer:
            return any(slot["is_processing"] for slot in json.load(answer))


@contextlib.contextmanager
def llama() -> Iterator[Llama]:
    words = [sys.executable, "-m", "tests.remote.llama_process", str(resolve(MODEL))]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(words, cwd=ROOT, env=env, stdout=pipe, stderr=null, text=True) as process:
        try:
            assert process.stdout is not None
            yield Llama(process, next(line.strip() for line in process.stdout if line.startswith("http")))
        finally:
            process.kill()


@pytest.fixture(scope="module")
def served() -> Iterator[Llama]:
    with llama() as server:
        yield server


@pytest.fixture(scope="module")
def member(served: Llama) -> Iterator[RemoteMember]:
    member = load(f"openai:{served.root}/v1#tiny")
    yield member
    member.close()


def test_what_it_can_is_found_out(member: RemoteMember) -> None:
    status = member.status("r")
    assert (status.lane, status.window, status.footprint_bytes) == ("remote", 2048, 0)
    assert {"OneOf", "Json"} <= set(status.constraints)
    assert status.notes[0].startswith("served by llama-server")
    assert not any("not quite" in note for note in status.notes), "prompts are what its chat endpoint makes"


def test_plain_text_streams(member: RemoteMember) -> None:
    asked = Asked(member, limit=24)
    done = asked.finished()
    assert done.text
    assert done.usage.prompt_tokens == len(asked.job.ids)
    assert 0 < done.usage.completion_tokens <= 24
    assert sum(delta.tokens for delta in asked.deltas()) == done.usage.completion_tokens == len(done.ids)
    assert len(asked.deltas()) > 1
    again = Asked(member, limit=24)
    assert again.finished().text == done.text, "temperature 0 says the same again"
    assert [item for item in again.items if isinstance(item, Prefill)][-1].recomputed_from > 0


def test_its_tokens_are_those_of_the_embedded_engine(member: RemoteMember) -> None:
    embedded = load_member(MODEL, ServingFlags(window=2048, context_budget=0), lambda *_: None, 0)
    texts = ["plain", " two\n\n  lines\t", "def f(x):\n    return {'é': x}  # 日本 🌟", "<|im_end|> <s> </s>", ""]
    chats = [
        [Part("system", "Be brief."), Part("user", text), Part("assistant", text), Part("user", "x")] for text in texts
    ]
    try:
        for chat in [*chats, [Part("user", "a"), Part("user", "b")], [Part("user", "a"), Part("assistant", "b")]]:
            assert member.render(chat) == embedded.render(chat)
        options = OneOf(kind="OneOf", options=["yes", "no", "not at all", "🌟 日本"])
        scores = []
        for each in (member, embedded):
            done = Asked(each, HELLO, constraint=options, logprobs=2).finished()
            choice = done.choice
            assert choice is not None and done.logprobs is not None
            assert [len(entry.top) for entry in done.logprobs] == [2] * len(done.ids)
            scores.append([score.logprob for score in choice.scores])
        # Two builds with other kernels: what the engine's own tolerance allows (ARCHITECTURE.md).
        assert scores[0] == pytest.approx(scores[1], abs=0.6)
    finally:
        embedded.close()


def test_json_follows_its_schema_in_our_style(member: RemoteMember) -> None:
    done = Asked(member, constraint=Json(kind="Json", schema_=SCHEMA)).finished()
    value = json.loads(done.text)
    jsonschema.validate(value, SCHEMA)
    assert done.text == json.dumps(value, ensure_ascii=False)
    assert done.finish == "stop"


def test_patterns_and_grammars_where_the_server_has_them(member: RemoteMember) -> None:
    if "Lark" not in member.status("r").constraints:
        pytest.skip("this xllamacpp was built without llguidance")
    assert Asked(member, constraint=Regex(kind="Regex", pattern="[a-c]{3}/x")).finished().text.endswith("/x")
    grammar = Lark(kind="Lark", grammar='start: "left" | "right"')
    assert Asked(member, constraint=grammar).finished().text in ("left", "right")


def test_a_bad_schema_is_refused_before_it_is_sent(member: RemoteMember) -> None:
    with pytest.raises(Refused, match=r"\$\.properties\.a") as refused:
        Asked(member, constraint=Json(kind="Json", schema_={"properties": {"a": {"type": "nonsense"}}}))
    assert refused.value.code == "constraint_invalid"


def test_log_probabilities_have_one_entry_for_each_token(member: RemoteMember) -> None:
    """Also in the middle of a character, which this server leaves out of its own answer."""
    emoji = (Part("user", "Answer with this: 日本 🌟 日本 🌟"),)
    for parts in (HELLO, emoji):
        done = Asked(member, parts, limit=8, logprobs=3).finished()
        assert done.logprobs is not None
        assert tuple(entry.token for entry in done.logprobs) == done.ids
        assert all(len(entry.top) == 3 and entry.logprob <= 0 for entry in done.logprobs)


def test_the_same_seed_says_the_same(member: RemoteMember) -> None:
    sampling = Sampling(temperature=1.2, top_p=0.95, top_k=50, min_p=0.01, repeat_penalty=1.1, seed=7)
    texts = {Asked(member, limit=12, sampling=sampling).finished().text for _ in range(2)}
    assert len(texts) == 1


def test_a_cancel_frees_the_server(served: Llama, member: RemoteMember) -> None:
    asked = Asked(member, LONG, limit=1500)
    while not isinstance(asked.next(), TextDelta):
        pass
    asked.job.cancel()
    done = asked.finished()
    assert done.finish == "cancelled"
    assert done.text
    end = time.monotonic() + BOUND_S
    while served.busy():
        assert time.monotonic() < end, "the server goes on with a generation that nobody reads"


def test_an_unknown_model_is_told_with_those_there_are(served: Llama) -> None:
    with pytest.raises(Refused, match="no model 'other'; it has: tiny") as refused:
        load(f"openai:{served.root}/v1#other")
    assert refused.value.code == "model_not_found"


def test_a_server_killed_in_mid_generation_is_named() -> None:
    with llama() as server:
        member = load(f"openai:{server.root}/v1#tiny")
        try:
            asked = Asked(member, LONG, limit=1500)
            while not isinstance(asked.next(), TextDelta):
                pass
            server.kill()
            failed = asked.failed()
            assert failed.code == "engine_failed"
            assert server.root in failed.message
            assert "Traceback" not in failed.message
        finally:
            member.close()


def test_a_server_without_llguidance_serves_json_only(served: Llama) -> None:
    """The real server behind one that refuses grammars of llguidance, as a build without it does."""

    def without(script: Script, path: str, body: Body) -> Reply:
        if "%llguidance" in body.get("grammar", ""):
            return answer({"error": {"code": 400, "message": "Failed to initialize samplers"}}, 400)
        request = urllib.request.Request(served.root + path, json.dumps(body).encode() if body else None)
        with urllib.request.urlopen(request, timeout=BOUND_S) as given:
            return Reply(kind=given.headers["content-type"], chunks=(given.read(),))

    with running(without, Script()) as root:
        member = load(f"openai:{root}/v1#tiny")
        try:
            assert member.status("r").constraints == ["OneOf", "Json"]
            done = Asked(member, constraint=Json(kind="Json", schema_=SCHEMA)).finished()
            assert done.text == json.dumps(json.loads(done.text), ensure_ascii=False)
            jsonschema.validate(json.loads(done.text), SCHEMA)
            with pytest.raises(Refused, match="cannot enforce a Regex constraint"):
                Asked(member, constraint=Regex(kind="Regex", pattern="a"))
        finally:
            member.close()


async def test_the_whole_command_serves_it(served: Llama, tmp_path: Path) -> None:
    socket = tmp_path / "pool.sock"
    env = os.environ | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path)}
    words = ["-m", "caldrix", "pool", "--socket", str(socket), "--load", f"openai:{served.root}/v1#tiny=remote"]
    pool = await asyncio.create_subprocess_exec(sys.executable, *words, env=env)
    try:
        async with asyncio.timeout(BOUND_S):
            client = await _connected(socket, pool)
            async with client:
                await _converse(client)
                await client.stop()
            assert await pool.wait() == 0
    finally:
        if pool.returncode is None:
            pool.send_signal(signal.SIGKILL)
            await pool.wait()


async def _connected(socket: Path, pool: asyncio.subprocess.Process) -> PoolClient:
    while not socket.exists():
        assert pool.returncode is None
        await asyncio.sleep(0.05)
    return await PoolClient.connect(socket, "me")


async def _converse(client: PoolClient) -> None:
    (member,) = (await client.status()).members
    assert (member.member, member.lane) == ("remote", "remote")
    context = await client.create("remote", [Segment(id="u", role="user", text="Name a colour.")])
    constraint = Json(kind="Json", schema_=SCHEMA)
    frames = [
        frame async for frame in client.generate(context.context, 48, constraint=constraint, append=Append(id="a"))
    ]
    done = frames[-1]
    assert isinstance(done, Done)
    jsonschema.validate(json.loads(done.text), SCHEMA)
    assert "".join(frame.text for frame in frames if isinstance(frame, Delta)) == done.text
    assert done.segment is not None
    shown = await client.show(context.context, text=True)
    assert [segment.text for segment in shown.segments] == ["Name a colour.", done.text]
    async with contextlib.aclosing(client.generate(context.context, 1500)) as rest:
        async for frame in rest:
            if isinstance(frame, Delta) and frame.text:
                break
    while (await client.status()).members[0].queue.running:
        await asyncio.sleep(0.02)  # within the bound of the whole
