"""What one client has attached to: a feed for each session, each with its pump."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from aerix_server.lsp.feed import Feed, ReadLog, Send
from aerix_server.lsp.ports import LivePort

logger = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Feeds:
    """The feeds of one client. `spawn` starts a task in the server's task group."""

    def __init__(self, send: Send, read_log: ReadLog, spawn: Spawn) -> None:
        self._send = send
        self._read_log = read_log
        self._spawn = spawn
        self._feeds: dict[str, Feed] = {}
        self._ends: dict[str, list[Callable[[], object]]] = {}

    def attach(self, live: LivePort, after_seq: int | None, deltas: bool = True) -> None:
        """Follow a session of this process; with `after_seq`, replay first. Attaching again changes what is asked."""
        feed = self._feeds.get(live.id)
        if feed is None:
            feed = self._open(live.id, live.last_seq())
            self._ends[live.id].append(live.subscribe(feed))
        self._ask(feed, after_seq, deltas)

    def attach_stored(self, session: str, last_seq: int, after_seq: int | None, deltas: bool = True) -> None:
        """Follow a session that only lies on disk, or that another process holds, by its log."""
        feed = self._feeds.get(session)
        if feed is None:
            feed = self._open(session, last_seq)
            self._ends[session].append(self._spawn(self._guarded(feed.poll(), session)).cancel)
        self._ask(feed, after_seq, deltas)

    def detach(self, session: str) -> None:
        """Nothing more of that session is sent. One that is not attached is no error."""
        self._feeds.pop(session, None)
        for end in self._ends.pop(session, []):
            end()

    async def drained(self, session: str) -> None:
        """Wait until the session's events up to now are on their way to the client."""
        if feed := self._feeds.get(session):
            await feed.drained()

    async def all_drained(self) -> None:
        for session in list(self._feeds):
            await self.drained(session)

    def close(self) -> None:
        for session in list(self._feeds):
            self.detach(session)

    def _open(self, session: str, sent: int) -> Feed:
        feed = self._feeds[session] = Feed(session, self._send, self._read_log, sent)
        # The answer to `attach` goes first: its callback is in the loop's queue before this task.
        self._ends[session] = []
        asyncio.get_running_loop().call_soon(self._start, feed)
        return feed

    def _start(self, feed: Feed) -> None:
        if self._feeds.get(feed.session) is feed:
            self._ends[feed.session].append(self._spawn(self._guarded(feed.run(), feed.session)).cancel)

    def _ask(self, feed: Feed, after_seq: int | None, deltas: bool) -> None:
        feed.deltas = deltas
        if after_seq is not None:
            feed.replay(after_seq)

    async def _guarded(self, work: Coroutine[Any, Any, None], session: str) -> None:
        """A fault in one feed must not end the server's task group."""
        try:
            await work
        except Exception:
            logger.exception("the feed of session %s ended", session)
            self.detach(session)
