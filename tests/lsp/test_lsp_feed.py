"""What a client is sent: replay then follow, seq order, nothing twice, nothing lost, all of it before the answer."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerix_server.lsp.backlog import Backlog, merge
from aerix_server.lsp.feed import Feed
from aerix_server.protocol.events import Event, Notice, ProgressEvent, TurnDelta, UsageEvent, dump_event
from tests.lsp.fake_sessions import segment
from tests.lsp.lsp_client import LspClient


async def start(lsp: LspClient, tmp_path: Path, prompt: str) -> dict[str, str]:
    session = (await lsp.call("aerix/session/new", {"cwd": str(tmp_path)}))["session"]["id"]
    request = (await lsp.call("aerix/request/start", {"session": session, "prompt": prompt}))["request"]
    return {"session": session, "request": request}


def seqs(events: list[dict[str, Any]]) -> list[int]:
    return [event["seq"] for event in events if event["type"] not in {"turn.delta", "notice", "progress", "usage"}]


async def test_all_events_are_sent_before_the_answer(lsp: LspClient, tmp_path: Path) -> None:
    ref = await start(lsp, tmp_path, "events 300")
    answer = lsp.ask("aerix/request/wait", ref)
    number = lsp.ids
    async with asyncio.timeout(20):
        await answer
    before = lsp.order[: lsp.order.index(("answer", number))]
    assert seqs([params for name, params in before if name == "aerix/event"]) == list(range(1, 302))


async def test_deltas_are_merged_and_complete(lsp: LspClient, tmp_path: Path) -> None:
    ref = await start(lsp, tmp_path, "deltas 2000")
    await lsp.call("aerix/request/wait", ref)
    deltas = [event for event in lsp.events(ref["session"]) if event["type"] == "turn.delta"]
    assert "".join(delta["text"] for delta in deltas) == "".join(f"{index} " for index in range(2000))
    assert len(deltas) < 200


async def test_deltas_can_be_left_out(lsp: LspClient, tmp_path: Path) -> None:
    session = (await lsp.call("aerix/session/new", {"cwd": str(tmp_path)}))["session"]["id"]
    await lsp.call("aerix/session/attach", {"session": session, "deltas": False})
    request = (await lsp.call("aerix/request/start", {"session": session, "prompt": "deltas 50"}))["request"]
    await lsp.call("aerix/request/wait", {"session": session, "request": request})
    assert [event["type"] for event in lsp.events(session)] == ["request.end"]


@pytest.mark.parametrize(("after", "expected"), [(0, [1, 2, 3, 4]), (2, [3, 4]), (9, []), (None, [])])
async def test_attach_replays_after_its_answer(lsp: LspClient, tmp_path: Path, after: Any, expected: list[int]) -> None:
    ref = await start(lsp, tmp_path, "events 3")
    await lsp.call("aerix/request/wait", ref)
    await lsp.call("aerix/session/detach", {"session": ref["session"]})
    seen = len(lsp.order)
    attach = {"session": ref["session"]} | ({} if after is None else {"afterSeq": after})
    assert (await lsp.call("aerix/session/attach", attach)) == {"seq": 4, "pending": []}
    await lsp.until(lambda: len(lsp.order) - seen > len(expected))
    assert lsp.order[seen][0] == "answer"
    assert seqs([params for _, params in lsp.order[seen + 1 :]]) == expected
    again = await lsp.call("aerix/request/start", {"session": ref["session"], "prompt": "events 1"})
    await lsp.call("aerix/request/wait", {"session": ref["session"], **again})
    events = [params for name, params in lsp.order[seen + 1 :] if name == "aerix/event"]
    assert seqs(events) == expected + ([] if after == 9 else [5, 6])


async def test_a_detached_client_is_sent_nothing(lsp: LspClient, tmp_path: Path) -> None:
    session = (await lsp.call("aerix/session/new", {"cwd": str(tmp_path)}))["session"]["id"]
    for _ in range(2):
        await lsp.call("aerix/session/detach", {"session": session})
    request = (await lsp.call("aerix/request/start", {"session": session, "prompt": "events 3"}))["request"]
    await lsp.call("aerix/request/wait", {"session": session, "request": request})
    assert lsp.events(session) == []


async def test_a_session_on_disk_is_replayed(lsp: LspClient) -> None:
    assert await lsp.call("aerix/session/attach", {"session": "old", "afterSeq": 2}) == {"seq": 5, "pending": []}
    await lsp.until(lambda: len(lsp.events("old")) == 3)
    assert seqs(lsp.events("old")) == [3, 4, 5]


async def test_a_session_that_another_process_writes_is_followed(lsp: LspClient, tmp_path: Path) -> None:
    assert (await lsp.call("aerix/session/attach", {"session": "old"}))["seq"] == 5
    await start(lsp, tmp_path, "grow")
    await lsp.until(lambda: lsp.events("old"))
    assert seqs(lsp.events("old")) == [6]


async def test_a_client_that_does_not_read_stops_nobody_and_misses_nothing(server: LspClient, tmp_path: Path) -> None:
    await server.initialize()
    pipe = server.process.stdout
    assert pipe
    session = (await server.call("aerix/session/new", {"cwd": str(tmp_path)}))["session"]["id"]
    transport = pipe._transport  # type: ignore[attr-defined]  # the one way to stop reading
    transport.pause_reading()
    server.ask("aerix/request/start", {"session": session, "prompt": "events 20000"})
    waiting = server.ask("aerix/request/wait", {"session": session, "request": "r1"})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5):
            await asyncio.shield(waiting)
    transport.resume_reading()
    async with asyncio.timeout(60):
        await waiting
    assert seqs(server.events(session)) == list(range(1, 20002))


def delta(text: str, turn: int = 1, seq: int = 0) -> TurnDelta:
    return TurnDelta(agent="a1", request="r1", turn=turn, text=text, seq=seq)


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        (delta("a"), delta("b"), delta("ab")),
        (delta("a"), delta("b", turn=2), None),
        (delta("a"), delta("b", seq=1), None),
        (segment("r1", "x", 1), delta("b", seq=1), None),
        (None, delta("b"), None),
        (
            ProgressEvent(phase="prefill", done=1, total=9),
            ProgressEvent(phase="prefill", done=5, total=9),
            ProgressEvent(phase="prefill", done=5, total=9),
        ),
        (ProgressEvent(phase="queue", done=1, total=1), ProgressEvent(phase="prefill", done=5, total=9), None),
        (UsageEvent(tokens=1, window=9), UsageEvent(tokens=2, window=9), UsageEvent(tokens=2, window=9)),
        (Notice(level="info", text="a"), Notice(level="info", text="a"), None),
    ],
)
def test_merge(first: Event | None, second: Event, merged: Event | None) -> None:
    assert merge(first, second) == merged


def test_a_full_backlog_forgets_what_the_log_holds() -> None:
    backlog = Backlog(limit=3)
    backlog.add(Notice(level="warning", text="kept"))
    for seq in range(1, 5):
        backlog.add(segment("r1", "x", seq))
        backlog.add(delta("t", seq=seq))
    kept = [backlog.take() for _ in range(len(backlog))]
    assert backlog.lost
    assert [getattr(item, "type", None) for item in kept] == ["notice", "turn.delta"]
    assert backlog.take() is None


class Log:
    """A log, and a client that reads only when `open`."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.open = asyncio.Event()

    async def read(self, _session: str, after: int) -> list[dict[str, Any]]:
        lines = [line for line in self.lines if line["seq"] > after]
        await asyncio.sleep(0)
        return lines

    def notify(self, _method: str, params: dict[str, Any]) -> None:
        self.sent.append(params)

    async def room(self) -> None:
        await self.open.wait()


@given(steps=st.lists(st.sampled_from(["event", "delta", "open", "close", "yield", "replay"]), max_size=60))
def test_every_logged_event_arrives_in_order_whatever_the_client_does(steps: list[str]) -> None:
    async def scenario() -> None:
        log = Log()
        feed = Feed("s", log, log.read, sent=0)
        feed._backlog = Backlog(limit=3)
        running = asyncio.create_task(feed.run())
        replays = 0
        for step in steps:
            if step == "event":
                event = segment("r1", "x", len(log.lines) + 1)
                log.lines.append(dump_event(event))
                feed.event("s", event)
            elif step == "delta":
                feed.event("s", delta("t", seq=len(log.lines)))
            elif step == "replay":
                replays += 1
                feed.replay(0)
            elif step == "yield":
                await asyncio.sleep(0)
            elif step == "open":
                log.open.set()
            else:
                log.open.clear()
        log.open.set()
        async with asyncio.timeout(5):
            await feed.drained()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        got = seqs(log.sent)
        assert sorted(set(got)) == list(range(1, len(log.lines) + 1))
        falls = sum(1 for before, after in itertools.pairwise(got) if after != before + 1)
        assert falls <= replays
        if not replays:
            assert got == list(range(1, len(log.lines) + 1))

    asyncio.run(scenario())


async def test_those_who_wait_are_released_when_the_feed_ends() -> None:
    log = Log()
    feed = Feed("s", log, log.read, sent=0)
    running = asyncio.create_task(feed.run())
    waiting = asyncio.create_task(feed.drained())
    await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(5):
        await waiting


def test_file_descriptors_of_the_client_are_closed_in_children() -> None:
    """Python's dup is not inheritable; the server relies on it."""
    fd = os.dup(0)
    assert not os.get_inheritable(fd)
    os.close(fd)
