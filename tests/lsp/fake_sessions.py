"""A small Sessions for the protocol's tests: sessions in memory, requests that end when they are told to.

The prompt of a request says what it does: `hang` waits for a cancel, `events N` emits N segments and ends, `deltas N`
N pieces of text, `no pool` cannot be bound, `crash` breaks, `grow` adds
a line to the log of the session `old` as another process would, anything else ends at once.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aerix_server.lsp.ports import Subscriber
from aerix_server.protocol import messages as m
from aerix_server.protocol.events import (
    DiffStat,
    Event,
    Notice,
    RequestEnd,
    SegmentEvent,
    SessionEnd,
    TurnDelta,
    Usage,
    dump_event,
)
from aerix_server.protocol.outcomes import AerixError, BadParams

NO_USAGE = Usage()


class FakeSession:
    def __init__(self, session_id: str, cwd: str, stored: dict[str, list[dict[str, Any]]]) -> None:
        self.stored = stored
        self.id = session_id
        self.cwd = cwd
        self.log: list[dict[str, Any]] = []
        self.subscribers: list[Subscriber] = []
        self.requests: dict[str, asyncio.Task[m.Outcome]] = {}
        self.cancels: dict[str, asyncio.Event] = {}

    def info(self) -> m.Session:
        return m.Session(
            id=self.id, cwd=self.cwd, project="p", title="t", created="c", updated="u", requests=0, model="fake"
        )

    def emit(self, event: Event) -> None:
        logged = event.type not in {"turn.delta", "progress", "usage", "notice"}
        stamped = event.model_copy(update={"seq": len(self.log) + logged, "time": "2026-01-01T00:00:00.000Z"})
        if logged:
            self.log.append(dump_event(stamped))
        for subscriber in list(self.subscribers):
            subscriber.event(self.id, stamped)

    def start_request(self, params: m.RequestStartParams) -> str:
        request = f"r{len(self.requests) + 1}"
        self.cancels[request] = asyncio.Event()
        self.requests[request] = asyncio.ensure_future(self._run(request, params.prompt))
        return request

    async def _run(self, request: str, prompt: str) -> m.Outcome:
        outcome = "final"
        word, _, count = prompt.partition(" ")
        if prompt == "no pool":
            raise AerixError("pool_unavailable", "No pool answers.", "Start one.")
        if prompt == "grow":
            self.stored["old"].append(dump_event(segment("r1", "grown", len(self.stored["old"]) + 1)))
        if prompt == "crash":
            raise RuntimeError("secret details")
        if prompt == "child":
            code = "import sys; print('noise'); sys.exit(len(sys.stdin.read()))"
            await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], check=True)
            print("noise of our own")  # noqa: T201  # what must not reach the protocol
        for index in range(int(count) if count.isdigit() else 0):
            if word == "events":
                self.emit(segment(request, f"text {index}"))
            else:
                self.emit(TurnDelta(agent="a1", request=request, turn=1, text=f"{index} "))
            if index % 50 == 0:
                await asyncio.sleep(0)
        if prompt == "hang":
            self.emit(Notice(request=request, level="info", text="hanging"))
            await self.cancels[request].wait()
            outcome = "cancelled"
        self.emit(
            RequestEnd(
                request=request, outcome=outcome, diff=DiffStat(added=0, removed=0, files=0), usage=NO_USAGE, ms=1
            )
        )
        return m.Outcome(outcome=outcome, text=prompt, usage=NO_USAGE, duration_ms=1, files_touched=[])

    async def wait(self, request: str) -> m.Outcome:
        if request not in self.requests:
            raise AerixError("not_found", f"There is no request {request}.")
        return await asyncio.shield(self.requests[request])

    async def cancel(self, request: str) -> bool:
        if request not in self.requests or self.requests[request].done():
            return False
        self.cancels[request].set()
        return True

    def decide(self, params: m.PlanDecideParams, by: str) -> m.PlanDecideResult:
        return m.PlanDecideResult(applied=True, by=by, decision=params.decision)

    def pending(self) -> list[m.PendingPlan]:
        return []

    def last_seq(self) -> int:
        return len(self.log)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        self.subscribers.append(subscriber)
        return lambda: self.subscribers.remove(subscriber)


class FakeSessions:
    def __init__(self, settings: dict[str, Any], overlay: Callable[[Path], str | None]) -> None:
        if "bad" in settings:
            raise BadParams("settings", "settings: there is no key bad; did you mean main?")
        self.overlay = overlay
        self.live: dict[str, FakeSession] = {}
        self.stored: dict[str, list[dict[str, Any]]] = {
            "old": [dump_event(segment("r1", f"old {seq}", seq)) for seq in range(1, 6)]
        }

    async def new(self, params: m.SessionNewParams) -> FakeSession:
        session = FakeSession(f"s{len(self.live) + 1}", params.cwd, self.stored)
        self.live[session.id] = session
        return session

    async def list(self, params: m.SessionListParams) -> list[m.Session]:
        return [session.info() for session in self.live.values()][: params.limit]

    async def get(self, session: str) -> FakeSession:
        if session not in self.live:
            raise AerixError("session_not_found", f"There is no session {session}.")
        return self.live[session]

    async def events(self, session: str, after_seq: int) -> Any:
        if session in self.live:
            lines = self.live[session].log
        elif session in self.stored:
            lines = self.stored[session]
        else:
            raise AerixError("session_not_found", f"There is no session {session}.")
        return [line for line in lines if line["seq"] > after_seq]

    async def transcript(self, params: m.SessionTranscriptParams) -> m.SessionTranscriptResult:
        events = await self.events(params.session, params.after_seq or 0)
        return m.SessionTranscriptResult(events=events[: params.limit], more=False)

    async def diff(self, params: m.DiffGetParams) -> m.DiffResult:
        """Abused to look at the overlay: `unified` is the unsaved text of the path that `request` names."""
        text = self.overlay(Path(params.request or ""))
        return m.DiffResult(files=[], untracked=[], unified=text or "", notice=None if text is None else "unsaved")

    async def pool_status(self) -> m.PoolStatusResult:
        raise ValueError("a fault of ours with a secret in it")

    async def close(self, reason: str) -> None:
        while self.live:
            _, session = self.live.popitem()
            for event in session.cancels.values():
                event.set()
            await asyncio.gather(*session.requests.values(), return_exceptions=True)
            session.emit(SessionEnd(reason=reason))
            session.emit(Notice(level="info", text="closed"))
            Path(session.cwd, "ended").write_text(reason)


def segment(request: str, text: str, seq: int = 0) -> SegmentEvent:
    return SegmentEvent(
        agent="a1",
        request=request,
        seq=seq,
        context="c",
        op="append",
        id="s",
        role="user",
        label="l",
        text=text,
        tokens=1,
        pinned=False,
    )


if __name__ == "__main__":
    from aerix_server.lsp.process import run

    run(FakeSessions)  # type: ignore[arg-type]  # the double has a list method of its own type
