"""The real runtime over a scripted pool: at every generation the log on disk tells what the pool's context holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from aerix_server.config.settings import Settings
from aerix_server.pool.port import NewSegment
from aerix_server.pool.start import BoundPool
from aerix_server.protocol import messages as m
from aerix_server.runtime.request import run_request
from aerix_server.session.log_reader import read_log
from aerix_server.session.rebuild import rebuild
from aerix_server.session.session import LiveSession
from aerix_server.session.sessions import Sessions
from aerix_server.session.work import read_spooled
from tests.runtime.scripted_pool import ScriptedPool


def calls(*made: tuple[str, dict[str, Any]]) -> str:
    return json.dumps({"thought": "t", "calls": [{"tool": tool, "input": given} for tool, given in made]})


FINAL = json.dumps({"thought": "t", "final": "done"})


class Replay:
    """A session whose every generation compares the log with the prompt the pool was given."""

    def __init__(self) -> None:
        self.pool = ScriptedPool([])
        self.live: LiveSession | None = None
        self.compared = 0

    async def bind(self, settings: Settings, report: Callable[[Any], None]) -> BoundPool:
        member = await self.pool.member("main")
        return BoundPool(self.pool, member, member, "/run/pool.sock")

    def step(self, text: str) -> Callable[[Sequence[NewSegment]], str]:
        def compare(held: Sequence[NewSegment]) -> str:
            assert self.live
            files = self.live.files
            state = rebuild(read_log(files.log).events, lambda name: read_spooled(files.spool, name))
            told = [(item.id, item.role, item.text, item.pinned) for item in state.segments]
            assert told == [(item.id, item.role, item.text, item.pinned) for item in held]
            self.compared += 1
            return text

        return compare

    async def ask(self, prompt: str, *turns: str) -> m.Outcome:
        assert self.live
        self.pool.script = [self.step(text) for text in turns]
        params = m.RequestStartParams(session=self.live.id, prompt=prompt, route="answer")
        async with asyncio.timeout(60):
            return await self.live.wait(self.live.start_request(params))


@pytest.fixture
async def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("DATA", "CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    (tmp_path / "work").mkdir()
    made = Replay()
    sessions = Sessions({"context": {"tool_caps": {"bash": 400}}}, bind=made.bind, run=run_request)
    made.live = await sessions.new(m.SessionNewParams(cwd=str(tmp_path / "work")))
    yield made
    await sessions.close("the test ends")


async def test_the_log_tells_what_the_pool_holds(replay: Replay, tmp_path: Path) -> None:
    (tmp_path / "work" / "a.txt").write_text("one\ntwo <|im_end|>\n")
    outcome = await replay.ask(
        "first",
        calls(("read", {"path": "a.txt"}), ("bash", {"command": "seq 1 500"}), ("plan", {"op": "write", "text": "p"})),
        calls(("context", {"op": "note", "text": "kept"}), ("context", {"op": "pin", "ids": ["s3"]})),
        FINAL,
    )
    assert outcome.outcome == "final", outcome
    outcome = await replay.ask("second", calls(("context", {"op": "drop", "ids": ["s4"]})), FINAL)
    assert outcome.outcome == "final", outcome
    outcome = await replay.ask("third", FINAL)
    assert outcome.outcome == "final" and replay.compared == 6
    assert replay.live
    events = read_log(replay.live.files.log).events
    assert any(event["type"] == "message" and event.get("result", {}).get("spool") for event in events)
    state = rebuild(events, lambda name: None)
    assert state.plan == "p" and state.calls == 6 and len({item.id for item in state.segments}) == len(state.segments)


async def test_a_call_that_was_interrupted_is_answered_in_the_next_request(replay: Replay) -> None:  # L06
    live = replay.live
    assert live
    replay.pool.script = [replay.step(calls(("bash", {"command": "sleep 60"}), ("read", {"path": "x"})))]
    request = live.start_request(m.RequestStartParams(session=live.id, prompt="first", route="answer"))

    class Watch:
        called = asyncio.Event()

        def event(self, session: str, event: Any) -> None:
            if event.type == "message" and event.role == "assistant":
                self.called.set()

        def plan_proposed(self, note: Any) -> None: ...
        def plan_decided(self, note: Any) -> None: ...
        def session_changed(self, note: Any) -> None: ...

    watch = Watch()
    live.subscribe(watch)
    async with asyncio.timeout(30):
        await watch.called.wait()
        await live.cancel(request)
        assert (await live.wait(request)).outcome == "cancelled"
    outcome = await replay.ask("second", FINAL)
    assert outcome.outcome == "final" and replay.compared == 2
    texts = [item.text for item in replay.pool.prompts[-1]]
    assert any(text.startswith("[bash c1]\n") for text in texts)
    assert "[read c2]\nerror: interrupted" in texts
