"""The state of a running pool: what its connections share, and how it is asked to stop."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from caldrix import __version__
from caldrix.daemon.cancellation import Cancellation
from caldrix.daemon.contexts import Contexts
from caldrix.daemon.log import Log
from caldrix.daemon.members import Members
from caldrix.daemon.options import PoolOptions
from caldrix.protocol.frames import MAX_DEPTH, MAX_FRAME_BYTES
from caldrix.protocol.messages import PROTOCOL_VERSION, Limits, MemoryInfo, PoolInfo, PoolStatus, Welcome

MAX_STOP_GRACE_S = 600.0


@dataclass(eq=False)
class OpenRequest:
    """A request that has had no last answer yet. `waits_for_stop`: a PoolStop, which is answered after all others."""

    id: int
    cancellation: Cancellation = field(default_factory=Cancellation)
    waits_for_stop: bool = False
    task: asyncio.Task[None] | None = None


class OpenConnection(Protocol):
    """A connection as the pool sees it."""

    async def close(self) -> None:
        """Send what waits, within a bound, and hang up."""


class Pool:
    def __init__(self, options: PoolOptions, members: Members, contexts: Contexts, log: Log, memory_limit: int) -> None:
        self.options = options
        self.members = members
        self.contexts = contexts
        self.log = log
        self.memory_limit = memory_limit
        self.connections: set[OpenConnection] = set()
        self.occupied = asyncio.Event()
        self.vacant = asyncio.Event()
        self.vacant.set()
        self.idle_since = time.monotonic()
        self.stop_requested = asyncio.Event()
        self.stop_grace_s = 0.0
        self.all_answered = asyncio.Event()
        self.had_large = asyncio.Event()
        """Set when a large message came, whose memory is to be given back."""
        self._requests: set[OpenRequest] = set()
        self._settled = asyncio.Event()
        self._settled.set()
        self._closed = asyncio.Event()
        self._closed.set()
        self._started_at = datetime.now(UTC).isoformat(timespec="milliseconds")

    def connect(self, connection: OpenConnection) -> None:
        self.connections.add(connection)
        self.occupied.set()
        self.vacant.clear()

    def disconnect(self, connection: OpenConnection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self.idle_since = time.monotonic()
            self.occupied.clear()
            self.vacant.set()

    def open(self, request: OpenRequest) -> None:
        self._requests.add(request)
        self._closed.clear()
        if not request.waits_for_stop:
            self._settled.clear()

    def answered(self, request: OpenRequest) -> None:
        self._requests.discard(request)
        if not self._requests:
            self._closed.set()
        if not self.unanswered():
            self._settled.set()

    def unanswered(self) -> list[OpenRequest]:
        """The open requests, PoolStop apart."""
        return [request for request in self._requests if not request.waits_for_stop]

    async def settled(self, timeout: float, *, stops: bool = False) -> bool:
        """Wait until every request is answered, with `stops` PoolStop too; False when `timeout` seconds do not do."""
        try:
            async with asyncio.timeout(timeout):
                await (self._closed if stops else self._settled).wait()
        except TimeoutError:
            return False
        return True

    def request_stop(self, grace_s: float = 0.0) -> None:
        """Ask for the end, once; open generations have `grace_s` seconds to end by themselves."""
        if not self.stop_requested.is_set():
            self.stop_grace_s = min(grace_s, MAX_STOP_GRACE_S)
            self.stop_requested.set()

    def welcome(self, request_id: int) -> Welcome:
        limits = Limits(frame_bytes=MAX_FRAME_BYTES, depth=MAX_DEPTH, context_grace_s=self.options.context_grace_s)
        return Welcome(
            id=request_id, version=PROTOCOL_VERSION, pool=self._info(), limits=limits, members=self.members.states()
        )

    def status(self, request_id: int) -> PoolStatus:
        return PoolStatus(
            id=request_id,
            pool=self._info(),
            members=self.members.states(),
            connections=len(self.connections),
            contexts=len(self.contexts),
            memory=MemoryInfo(limit_bytes=self.memory_limit, used_bytes=self.members.used_bytes()),
            idle_timeout_s=self.options.idle_timeout_s,
            idle_for_s=0.0 if self.connections else time.monotonic() - self.idle_since,
        )

    def _info(self) -> PoolInfo:
        return PoolInfo(version=__version__, pid=os.getpid(), started_at=self._started_at)
