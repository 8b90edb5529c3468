"""Sessions from request to outcome: order of events, one request at a time, cancel, gate, faults, what is on disk.

The pool and the runtime are small fakes given as arguments; log, index, snapshot and diff are real.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from aerix_server.config.load import SettingsError
from aerix_server.config.settings import Settings
from aerix_server.pool.port import MemberState, Pool
from aerix_server.pool.start import BoundPool
from aerix_server.protocol import messages as m
from aerix_server.protocol.events import (
    LIVE_TYPES,
    AgentEnd,
    AgentSpawn,
    Event,
    Notice,
    ProgressEvent,
    SegmentEvent,
    TurnDelta,
    Usage,
)
from aerix_server.protocol.outcomes import AerixError, BadParams
from aerix_server.runtime.ports import ProposedPlan, RequestPorts, RequestResult, RequestSpec, RootState
from aerix_server.session.log import LogFailed
from aerix_server.session.log_reader import read_log
from aerix_server.session.session import LiveSession
from aerix_server.session.sessions import Sessions

MEMBER = MemberState("main", "smollm2", "cpu", 8192, frozenset({"Json"}), None, None)


class FakePool:
    def __init__(self) -> None:
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1


class World:
    """A pool that can be bound, and a runtime that does what the prompt says."""

    def __init__(self) -> None:
        self.pool = FakePool()
        self.refusal: AerixError | None = None
        self.hang_binding = False
        self.histories: list[RootState | None] = []
        self.ports: list[RequestPorts] = []
        self.started = asyncio.Event()
        self.decisions: list[Any] = []

    async def bind(self, settings: Settings, report: Callable[[ProgressEvent | Notice], None]) -> BoundPool:
        report(ProgressEvent(phase="autostart", done=1, total=2))
        self.started.set()
        if self.hang_binding:
            await asyncio.Event().wait()
        if self.refusal:
            raise self.refusal
        return BoundPool(cast(Pool, self.pool), MEMBER, MEMBER, "/run/pool.sock")

    async def run(self, spec: RequestSpec, ports: RequestPorts, history: RootState | None) -> RequestResult:
        self.histories.append(history)
        self.ports.append(ports)
        number = int(spec.id[1:])
        ports.emit(AgentSpawn(agent="a1", parent=None, kind="root", member="main", depth=0, request=spec.id))
        ports.emit(
            SegmentEvent(
                agent="a1",
                request=spec.id,
                context="a1",
                op="append",
                id=f"s{number}",
                role="user",
                label="prompt",
                text=spec.prompt,
                tokens=3,
                pinned=False,
            )
        )
        ports.emit(TurnDelta(agent="a1", request=spec.id, turn=1, text="…"))
        word, _, rest = spec.prompt.partition(" ")
        touched: tuple[str, ...] = ()
        outcome: Any = "final"
        if word == "hang":
            self.started.set()
            await ports.cancelled.wait()
            outcome = "cancelled"
        if word == "crash":
            raise KeyError("secret")
        if word == "deaf":
            self.started.set()
            await asyncio.Event().wait()
        if word == "disk":
            raise LogFailed("The session's log cannot be written: the disk is full.")
        if word == "plan":
            assert ports.gate is not None
            self.decisions.append(await ports.gate(ProposedPlan("a1", rest, 1)))
        if word == "write":
            await asyncio.to_thread((ports.cwd / rest).write_text, "by the agent\n")
            touched = (rest,)
        usage = Usage(prompt_tokens=5, completion_tokens=2)
        ports.emit(
            AgentEnd(
                agent="a1",
                request=spec.id,
                outcome=outcome,
                turns=1,
                usage=usage,
                files_touched=list(touched),
                checks_run=[],
            )
        )
        return RequestResult(outcome, None, "answer", None, usage, 1, touched)


class Listener:
    def __init__(self, live: LiveSession) -> None:
        self.live = live
        self.events: list[Event] = []
        self.on_disk: list[int] = []
        self.proposed: list[m.PlanProposed] = []
        self.decided: list[m.PlanDecided] = []
        self.states: list[str] = []
        self.news = asyncio.Event()

    def event(self, session: str, event: Event) -> None:
        assert session == self.live.id and asyncio.get_running_loop()
        self.events.append(event)
        if event.type not in LIVE_TYPES:
            self.on_disk.append(read_log(self.live.files.log).events[-1]["seq"])
        self.news.set()

    def plan_proposed(self, note: m.PlanProposed) -> None:
        self.proposed.append(note)
        self.news.set()

    def plan_decided(self, note: m.PlanDecided) -> None:
        self.decided.append(note)

    def session_changed(self, note: m.SessionChanged) -> None:
        self.states.append(note.session.state)

    async def until(self, ready: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not ready():
                self.news.clear()
                await self.news.wait()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DATA", "CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "T")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "t@example.org")
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "a.txt").write_text("a\n")
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "c"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@pytest.fixture
async def sessions(world: World, repo: Path) -> AsyncIterator[Sessions]:
    made = Sessions({}, bind=world.bind, run=world.run)
    yield made
    await made.close("the test ends")


async def new(sessions: Sessions, repo: Path, **more: Any) -> tuple[LiveSession, Listener]:
    live = await sessions.new(m.SessionNewParams(cwd=str(repo), **more))
    listener = Listener(live)
    live.subscribe(listener)
    return live, listener


def ask(live: LiveSession, prompt: str, **more: Any) -> str:
    return live.start_request(m.RequestStartParams(session=live.id, prompt=prompt, **more))


async def run(live: LiveSession, prompt: str, **more: Any) -> m.Outcome:
    return await within(live.wait(ask(live, prompt, **more)))


async def within(work: Awaitable[m.Outcome]) -> m.Outcome:
    async with asyncio.timeout(30):
        return await work


def kinds(events: list[Event]) -> list[str]:
    return [event.type for event in events]


async def test_a_request_from_start_to_end(world: World, sessions: Sessions, repo: Path) -> None:
    live, listener = await new(sessions, repo)
    assert not live.files.log.exists() and live.last_seq() == 0
    assert (live.info().state, live.info().title, live.info().model) == ("idle", "", "auto")
    outcome = await run(live, "  What is this?\nmore")
    assert (outcome.outcome, outcome.text, outcome.files_touched) == ("final", "answer", [])
    assert outcome.usage.completion_tokens == 2 and outcome.duration_ms >= 0
    assert kinds(listener.events) == [
        "progress",
        "session.start",
        "request.start",
        "agent.spawn",
        "segment",
        "turn.delta",
        "agent.end",
        "request.end",
    ]
    assert [event.seq for event in listener.events] == [0, 1, 2, 3, 4, 4, 5, 6]
    assert listener.on_disk == [1, 2, 3, 4, 5, 6]
    assert all(event.request == "r1" for event in listener.events if event.type != "session.start")
    lines = read_log(live.files.log).events
    assert [line["seq"] for line in lines] == [1, 2, 3, 4, 5, 6]
    start, begin, end = lines[0], lines[1], lines[-1]
    assert (start["model"], start["member"], start["lane"], start["window"]) == ("smollm2", "main", "cpu", 8192)
    assert start["git"]["branch"] == "main" and start["git"]["dirty"] is False and start["source"] == "new"
    assert begin["snapshot"]["kind"] == "commit" and begin["prompt"] == "  What is this?\nmore"
    assert end["outcome"] == "final" and end["diff"] == {"added": 0, "removed": 0, "files": 0}
    assert (live.info().title, live.info().requests, live.info().model) == ("What is this?", 1, "smollm2")
    assert listener.states == ["running", "idle"] and world.pool.closed == 1
    assert live.files.folder.stat().st_mode & 0o777 == 0o700


async def test_a_second_request_goes_on_with_the_first(world: World, sessions: Sessions, repo: Path) -> None:
    live, _ = await new(sessions, repo)
    await run(live, "one")
    await run(live, "two")
    assert world.histories[0] is None
    second = world.histories[1]
    assert second and [(item.id, item.text) for item in second.segments] == [("s1", "one")]
    lines = read_log(live.files.log).events
    assert [line["request"] for line in lines if line["type"] == "request.start"] == ["r1", "r2"]
    assert [line["type"] for line in lines].count("session.start") == 1


async def test_a_repeated_client_id_is_the_same_request(sessions: Sessions, repo: Path) -> None:
    live, _ = await new(sessions, repo)
    first = ask(live, "hang", client_request_id="x")
    assert ask(live, "hang", client_request_id="x") == first
    with pytest.raises(AerixError) as caught:
        ask(live, "other", client_request_id="y")
    assert caught.value.code == "request_running" and "r1" in caught.value.message
    assert await live.cancel(first)
    await live.wait(first)
    assert ask(live, "again", client_request_id="x") == first


async def test_cancel_is_prompt_and_final(world: World, sessions: Sessions, repo: Path) -> None:
    live, listener = await new(sessions, repo)
    request = ask(live, "hang")
    await listener.until(lambda: "turn.delta" in kinds(listener.events))
    begun = time.monotonic()
    assert await live.cancel(request) is True
    outcome = await within(live.wait(request))
    assert outcome.outcome == "cancelled" and time.monotonic() - begun < 5
    assert await live.cancel(request) is False and await live.cancel("r9") is False
    assert kinds(listener.events)[-1] == "request.end"


async def test_cancel_while_the_pool_starts(world: World, sessions: Sessions, repo: Path) -> None:
    world.hang_binding = True
    live, listener = await new(sessions, repo)
    request = ask(live, "x")
    await world.started.wait()
    await live.cancel(request)
    outcome = await within(live.wait(request))
    assert outcome.outcome == "cancelled" and outcome.reason
    assert kinds(listener.events) == ["progress", "session.start", "request.start", "request.end"]


async def test_cancel_while_the_snapshot_is_taken(
    world: World, sessions: Sessions, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, listener = await new(sessions, repo)
    slow, gate = tmp_path / "bin" / "git", tmp_path / "go on"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\nwhile [ ! -e '{gate}' ]; do sleep 0.05; done\nexit 1\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    request = ask(live, "hang")
    await world.started.wait()
    begun = time.monotonic()
    await live.cancel(request)
    await listener.until(lambda: "agent.end" in kinds(listener.events))
    assert time.monotonic() - begun < 5
    gate.touch()
    assert (await within(live.wait(request))).outcome == "cancelled"
    assert read_log(live.files.log).events[1]["snapshot"]["kind"] == "none"


@pytest.mark.parametrize("code", ["pool_unavailable", "model_refused"])
async def test_without_a_pool_the_wait_is_refused_and_the_log_tells(
    world: World, sessions: Sessions, repo: Path, code: Any
) -> None:
    live, listener = await new(sessions, repo)
    world.refusal = AerixError(code, "No pool.", "Start one.")
    request = ask(live, "x")
    for _ in range(2):
        with pytest.raises(AerixError) as caught:
            await live.wait(request)
        assert (caught.value.code, caught.value.message, caught.value.hint) == (code, "No pool.", "Start one.")
    logged = [event for event in listener.events if event.type not in LIVE_TYPES]
    assert kinds(logged) == ["session.start", "request.start", "request.end"]
    lines = read_log(live.files.log).events
    assert (lines[0]["member"], lines[0]["lane"], lines[0]["window"]) == ("", "none", 0)
    assert (lines[-1]["outcome"], lines[-1]["reason"]) == ("failed", "No pool.")
    world.refusal = None
    assert (await run(live, "again")).outcome == "final"
    assert world.histories == [None]


async def test_a_fault_of_ours_ends_by_name(
    sessions: Sessions, repo: Path, caplog: pytest.LogCaptureFixture, world: World
) -> None:
    live, _ = await new(sessions, repo)
    with caplog.at_level(logging.ERROR):
        outcome = await run(live, "crash")
    assert outcome.outcome == "failed" and outcome.reason and "secret" not in outcome.reason
    assert any(record.exc_info for record in caplog.records)
    assert read_log(live.files.log).events[-1]["outcome"] == "failed"
    assert world.pool.closed == 1
    assert (await run(live, "fine")).outcome == "final"


async def test_a_log_that_fails_in_the_middle(sessions: Sessions, repo: Path) -> None:
    live, _ = await new(sessions, repo)
    outcome = await run(live, "disk")
    assert outcome.outcome == "failed" and outcome.reason and "disk is full" in outcome.reason


async def test_a_log_that_cannot_be_made(sessions: Sessions, repo: Path, tmp_path: Path) -> None:
    live, _ = await new(sessions, repo)
    (tmp_path / "data").mkdir(exist_ok=True)
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "data").write_text("a file")
    outcome = await run(live, "x")
    assert outcome.outcome == "failed" and outcome.reason and "cannot be written" in outcome.reason
    (tmp_path / "data").unlink()
    assert (await run(live, "x")).outcome == "final"
    assert read_log(live.files.log).events[0]["type"] == "session.start"


async def test_the_gate(world: World, sessions: Sessions, repo: Path) -> None:
    live, listener = await new(sessions, repo)
    request = ask(live, "plan do this", gate_plan=True)
    await listener.until(lambda: bool(listener.proposed))
    (pending,) = live.pending()
    assert (pending.text, pending.version, pending.request) == ("do this", 1, request)
    assert live.info().state == "waiting"

    def decide(decision: Any, by: str = "me", **more: Any) -> m.PlanDecideResult:
        params = {"session": live.id, "request": request, "plan": pending.plan, "version": 1} | more
        return live.decide(m.PlanDecideParams(decision=decision, **params), by)

    for wrong, code in (
        ({"version": 2}, "stale_version"),
        ({"plan": "p"}, "not_found"),
        ({"request": "r2"}, "not_found"),
    ):
        with pytest.raises(AerixError) as caught:
            decide("accept", **wrong)
        assert caught.value.code == code
    with pytest.raises(BadParams, match="new text"):
        decide("edit", text="  ")
    assert decide("edit", "vscode", text="do that").applied
    late = decide("abort", "terminal")
    assert (late.applied, late.by, late.decision) == (False, "vscode", "edit")
    assert (await live.wait(request)).outcome == "final"
    assert [(made.decision, made.text) for made in world.decisions] == [("edit", "do that")]
    assert [(note.decision, note.by) for note in listener.decided] == [("edit", "vscode")]
    assert live.pending() == [] and listener.states == ["running", "waiting", "running", "idle"]


async def test_no_gate_unless_asked_for(world: World, sessions: Sessions, repo: Path) -> None:
    live, _ = await new(sessions, repo)
    await run(live, "x")
    await run(live, "x", gate_plan=True)
    assert [ports.gate is None for ports in world.ports] == [True, False]


async def test_the_diff_of_a_request_and_of_the_session(sessions: Sessions, repo: Path) -> None:
    live, _ = await new(sessions, repo)

    async def diff(**more: Any) -> m.DiffResult:
        return await sessions.diff(m.DiffGetParams(session=live.id, **more))

    assert (await diff()).notice == "no request of this session has started yet"
    (repo / "b.txt").write_text("the user's\n")
    outcome = await run(live, "write a.txt")
    assert outcome.files_touched == ["a.txt"]
    first = await diff()
    assert [file.path for file in first.files] == ["a.txt"] and first.untracked == [] and first.notice is None
    assert read_log(live.files.log).events[-1]["diff"] == {"added": 1, "removed": 1, "files": 1}
    await run(live, "write new.txt")
    (repo / "a.txt").write_text("the user's later edit\n")
    assert await diff(request="r1") == first
    assert (await diff()).untracked == ["new.txt"]
    whole = await diff(since="session")
    assert [file.path for file in whole.files] == ["a.txt"] and whole.untracked == ["new.txt"]
    assert "the user's later edit" in whole.unified
    with pytest.raises(AerixError) as caught:
        await diff(request="r9")
    assert caught.value.code == "not_found"


async def test_the_diff_of_a_running_request(sessions: Sessions, repo: Path) -> None:
    live, listener = await new(sessions, repo)
    request = ask(live, "hang")
    await listener.until(lambda: "turn.delta" in kinds(listener.events))
    (repo / "a.txt").write_text("changed\n")
    diff = await sessions.diff(m.DiffGetParams(session=live.id, request=request))
    assert "+changed" in diff.unified and diff.notice and "not come to its end" in diff.notice
    await live.cancel(request)
    await live.wait(request)


async def test_close_ends_the_running_request_and_the_session(world: World, sessions: Sessions, repo: Path) -> None:
    live, listener = await new(sessions, repo)
    request = ask(live, "hang")
    waiting = asyncio.ensure_future(live.wait(request))
    await listener.until(lambda: "turn.delta" in kinds(listener.events))
    await live.close("the server ends")
    assert (await waiting).outcome == "cancelled"
    lines = read_log(live.files.log).events
    assert [line["type"] for line in lines[-3:]] == ["agent.end", "request.end", "session.end"]
    assert lines[-1]["reason"] == "the server ends"
    assert not live.files.log.with_suffix(".lock").exists()
    await live.close("again")
    with pytest.raises(AerixError) as caught:
        ask(live, "x")
    assert caught.value.code == "conflict"
    assert len(read_log(live.files.log).events) == len(lines)


async def test_close_ends_a_runtime_that_does_not_listen(
    world: World, sessions: Sessions, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerix_server.session.session.CLOSE_S", 2.0)
    live, listener = await new(sessions, repo)
    request = ask(live, "deaf")
    await listener.until(lambda: "turn.delta" in kinds(listener.events))
    await live.close("x")
    outcome = await within(live.wait(request))
    assert outcome.outcome == "cancelled"


async def test_a_subscriber_that_breaks_is_dropped(sessions: Sessions, repo: Path) -> None:
    live, listener = await new(sessions, repo)

    class Broken(Listener):
        def event(self, session: str, event: Event) -> None:
            self.events.append(event)
            raise RuntimeError("broken")

    broken = Broken(live)
    leave = live.subscribe(broken)
    assert (await run(live, "x")).outcome == "final"
    assert len(broken.events) == 1 and len(listener.events) == 8
    leave()
    leave()


async def test_lists_and_reads_of_every_session(world: World, sessions: Sessions, repo: Path, tmp_path: Path) -> None:
    first, _ = await new(sessions, repo, title="named")
    await run(first, "one")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other, _ = await new(sessions, elsewhere)
    second, _ = await new(sessions, repo)
    ids = [session.id for session in await sessions.list(m.SessionListParams(cwd=str(repo)))]
    assert ids == [second.id, first.id]
    assert {session.id for session in await sessions.list(m.SessionListParams())} == {first.id, other.id, second.id}
    assert len(await sessions.list(m.SessionListParams(limit=1))) == 1
    await first.close("done")

    outside = Sessions({}, bind=world.bind, run=world.run)
    (stored,) = await outside.list(m.SessionListParams(cwd=str(repo)))
    assert (stored.id, stored.title, stored.requests, stored.state) == (first.id, "named", 1, "idle")
    with pytest.raises(AerixError, match="not open in this server") as caught:
        await outside.get(first.id)
    assert caught.value.code == "session_not_found"
    events = await outside.events(first.id, 2)
    assert [event["seq"] for event in events] == [3, 4, 5, 6, 7] and events[-1]["type"] == "session.end"
    assert (await outside.diff(m.DiffGetParams(session=first.id))).files == []
    page = await outside.transcript(m.SessionTranscriptParams(session=first.id, agent="a1", limit=2))
    assert [event["type"] for event in page.events] == ["agent.spawn", "segment"] and page.more
    rest = await outside.transcript(m.SessionTranscriptParams(session=first.id, after_seq=page.events[-1]["seq"]))
    assert [event["type"] for event in rest.events] == ["agent.end", "request.end", "session.end"] and not rest.more
    assert await sessions.events(second.id, 0) == []
    for method in (outside.get("nope"), outside.events("../x", 0), outside.events("nope", 0)):
        with pytest.raises(AerixError) as caught:
            await method
        assert caught.value.code == "session_not_found"


async def test_a_session_another_server_holds_can_be_read(world: World, sessions: Sessions, repo: Path) -> None:
    live, listener = await new(sessions, repo)
    request = ask(live, "hang")
    await listener.until(lambda: "turn.delta" in kinds(listener.events))
    outside = Sessions({}, bind=world.bind, run=world.run)
    assert [event["seq"] for event in await outside.events(live.id, 0)] == [1, 2, 3, 4]
    with pytest.raises(AerixError, match=f"in use by process {os.getpid()}") as caught:
        await outside.get(live.id)
    assert caught.value.code == "session_locked"
    await live.cancel(request)
    await live.wait(request)


async def test_what_new_refuses(sessions: Sessions, repo: Path, tmp_path: Path) -> None:
    with pytest.raises(BadParams, match="no folder"):
        await sessions.new(m.SessionNewParams(cwd=str(tmp_path / "missing")))
    with pytest.raises(AerixError) as caught:
        await sessions.new(m.SessionNewParams(cwd=str(repo), profile="p"))
    assert caught.value.code == "unsupported"
    with pytest.raises(SettingsError, match="did you mean main"):
        await Sessions({"main": {"modle": "x"}}).new(m.SessionNewParams(cwd=str(repo)))
    live = await sessions.new(m.SessionNewParams(cwd=str(repo)))
    for prompt in ("", " \n\t"):
        with pytest.raises(BadParams) as bad:
            ask(live, prompt)
        assert bad.value.field == "prompt"
    with pytest.raises(AerixError) as caught:
        await live.wait("r1")
    assert caught.value.code == "not_found"


@pytest.mark.parametrize(
    "base", [{"main": {"model": "base", "flags": ["--x"]}}, {"main.model": "base", "main.flags": ["--x"]}]
)
async def test_a_chosen_model_wins_over_the_callers_settings(world: World, repo: Path, base: dict[str, Any]) -> None:
    sessions = Sessions(base, bind=world.bind, run=world.run)
    live = await sessions.new(m.SessionNewParams(cwd=str(repo), model="chosen"))
    await run(live, "x")
    settings = world.ports[0].settings
    assert (settings.main.model, settings.main.flags) == ("chosen", ["--x"])
    await sessions.close("x")


async def test_instructions_attachments_and_notices(world: World, sessions: Sessions, repo: Path) -> None:
    (repo / "AGENTS.md").write_text("be kind")
    (repo / ".aerix").mkdir()
    (repo / ".aerix" / "config.toml").write_text("[main]\nmodle = 'x'\n")
    live, listener = await new(sessions, repo)
    attachment = m.Attachment(uri=(repo / "a.txt").as_uri())
    await run(live, "look", attachments=[attachment])
    assert world.ports[0].instructions.endswith("be kind")
    notices = [event.text for event in listener.events if isinstance(event, Notice)]
    assert len(notices) == 1 and "did you mean main.model" in notices[0]
    begin = read_log(live.files.log).events[1]
    assert begin["prompt"] == "look" and begin["attachments"] == [{"uri": attachment.uri}]
    segment = next(event for event in listener.events if isinstance(event, SegmentEvent))
    assert segment.text == f"look\n\nAttached:\n- {repo}/a.txt"


async def test_outside_a_repository(sessions: Sessions, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    live, listener = await new(sessions, folder)
    outcome = await run(live, "write made.txt")
    assert outcome.outcome == "final"
    diff = await sessions.diff(m.DiffGetParams(session=live.id))
    assert (diff.files, diff.untracked) == ([], ["made.txt"]) and diff.notice
    assert read_log(live.files.log).events[0].get("git") is None
    assert not [event for event in listener.events if isinstance(event, Notice)]


async def test_the_index_lies_beside_the_log(sessions: Sessions, repo: Path) -> None:
    live, _ = await new(sessions, repo)
    await run(live, "x")
    await live.close("done")
    index = json.loads((live.files.folder / "index.json").read_bytes())
    assert [item["session"]["id"] for item in index["sessions"]] == [live.id]
    assert sorted(os.listdir(live.files.folder)) == [f"{live.id}.diffs", f"{live.id}.jsonl", "index.json"]
