"""One client's view of one session: replay from the log, then follow, each logged event once and in seq order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from aerix_server.lsp.backlog import Backlog, Marker, Note
from aerix_server.lsp.method import dump
from aerix_server.protocol import messages as m
from aerix_server.protocol.events import LIVE_TYPES, Event, Notice, dump_event
from aerix_server.protocol.outcomes import AerixError

logger = logging.getLogger(__name__)

BATCH_S: Final = 0.04
"""How long live text is gathered before it is sent."""
POLL_S: Final = 1.0
POLL_MAX_S: Final = 5.0
"""How often the log of a session that another process writes is looked at; slower while nothing comes."""

ReadLog = Callable[[str, int], Awaitable[list[dict[str, Any]]]]


class Send(Protocol):
    """The way to a client. `room` waits while the client does not read."""

    def notify(self, method: str, params: dict[str, Any]) -> None: ...
    async def room(self) -> None: ...


class Feed:
    """A Subscriber that queues and a pump (`run`) that sends.

    `sent` is the seq of the last logged event the client has; what is wanted before the queue is read from the log.
    """

    def __init__(self, session: str, send: Send, read_log: ReadLog, sent: int) -> None:
        self.session = session
        self.deltas = True
        self._send = send
        self._read_log = read_log
        self._sent = sent
        self._replay = False
        self._backlog = Backlog()
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()

    # --- Subscriber -------------------------------------------------------------------------------------------------

    def event(self, session: str, event: Event) -> None:
        if event.type == "turn.delta" and not self.deltas:
            return
        self._backlog.add(event)
        self._wake.set()
        if event.type != "turn.delta":
            self._hurry.set()

    def plan_proposed(self, note: m.PlanProposed) -> None:
        self._note("aerix/plan/proposed", note)

    def plan_decided(self, note: m.PlanDecided) -> None:
        self._note("aerix/plan/decided", note)

    def session_changed(self, note: m.SessionChanged) -> None:
        self._note("aerix/session/changed", note)

    def _note(self, method: str, note: m.Wire) -> None:
        self._backlog.put(Note(method, dump(note)))
        self._urge()

    def _urge(self) -> None:
        self._wake.set()
        self._hurry.set()

    # --- for the client's requests ----------------------------------------------------------------------------------

    def replay(self, after_seq: int) -> None:
        """Send the log's events after that seq, before what is queued."""
        self._sent = after_seq
        self._replay = True
        self._urge()

    async def drained(self) -> None:
        """Wait until all that was queued before this call is on its way."""
        marker: Marker = asyncio.get_running_loop().create_future()
        self._backlog.put(marker)
        self._urge()
        await marker

    # --- the pump ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send what comes, until cancelled. Those who wait in `drained` are then released."""
        try:
            while True:
                await self._wake.wait()
                await self._gather()
                self._wake.clear()
                self._hurry.clear()
                await self._flush()
        finally:
            while (item := self._backlog.take()) is not None:
                _resolve(item)

    async def poll(self) -> None:
        """Follow a session that another process writes."""
        pause = POLL_S
        while True:
            await asyncio.sleep(pause)
            before = self._sent
            self.replay(before)
            await self.drained()
            pause = POLL_S if self._sent > before else min(pause * 2, POLL_MAX_S)

    async def _gather(self) -> None:
        try:
            async with asyncio.timeout(BATCH_S):
                await self._hurry.wait()
        except TimeoutError:
            return

    async def _flush(self) -> None:
        while True:
            await self._send.room()
            if self._replay or self._backlog.lost:
                await self._catch_up()
                continue
            item = self._backlog.take()
            if item is None:
                return
            if isinstance(item, Note):
                self._send.notify(item.method, item.params)
            elif isinstance(item, asyncio.Future):
                _resolve(item)
            else:
                self._send_event(item)

    async def _catch_up(self) -> None:
        if self._backlog.lost and not self._replay:
            self._say("resync: this client fell behind; live text was dropped, and what follows is read from the log")
        self._replay = self._backlog.lost = False
        start = self._sent
        try:
            events = await self._read_log(self.session, start)
        except (AerixError, OSError) as error:
            logger.warning("could not replay session %s: %s", self.session, error)
            self._say(f"the session's log could not be read: {error}")
            return
        for event in events:
            await self._send.room()
            if self._sent < event["seq"] and not self._replay:
                self._sent = event["seq"]
                self._send.notify("aerix/event", {"session": self.session, **event})

    def _send_event(self, event: Event) -> None:
        if event.type in LIVE_TYPES:
            if event.seq < self._sent and event.type != "notice":
                return  # it was overtaken by a replay
        elif event.seq <= self._sent:
            return
        else:
            self._sent = event.seq
        self._send.notify("aerix/event", {"session": self.session, **dump_event(event)})

    def _say(self, text: str) -> None:
        notice = Notice(seq=self._sent, level="warning", text=text)
        self._send.notify("aerix/event", {"session": self.session, **dump_event(notice)})


def _resolve(item: object) -> None:
    if isinstance(item, asyncio.Future) and not item.done():
        item.set_result(None)
