"""The life of a pool: lock, load, bind, serve, stop.

It binds only after every load, so who can connect finds every member. It ends on request, on a signal (through `stop`),
or when it was idle for long enough: open requests are answered, the socket is removed, the models are freed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from caldrix.daemon.binding import Listener, bind, check_free, lock
from caldrix.daemon.cancellation import Cancellation
from caldrix.daemon.connection import CHUNK_BYTES, Connection
from caldrix.daemon.contexts import Contexts
from caldrix.daemon.log import Log, open_log
from caldrix.daemon.members import Members, Phase
from caldrix.daemon.memory import trim
from caldrix.daemon.options import CannotStart, LoadSpec, PoolOptions
from caldrix.daemon.peer import is_ours, peer_uid
from caldrix.daemon.pool import Pool
from caldrix.daemon.threads import is_fault
from caldrix.engine.api import Loader
from caldrix.models.machine import memory_limit
from caldrix.protocol.errors import Refused

SETTLE_TIMEOUT_S = 15.0
FORCED_TIMEOUT_S = 2.0
CLOSE_TIMEOUT_S = 10.0
ACCEPT_RETRY_S = 0.5
TRIM_EVERY_S = 15.0

Announce = Callable[[str], None]
"""Called with a line for the person who started the pool: what is being loaded, and that it listens."""


@dataclass(frozen=True)
class Signals:
    """What passes between a pool and who started it."""

    stop: asyncio.Event
    ready: asyncio.Event
    announce: Announce


def _silent(line: str) -> None:
    """Nobody watches."""


async def serve(
    options: PoolOptions,
    load: Loader,
    *,
    stop: asyncio.Event | None = None,
    ready: asyncio.Event | None = None,
    announce: Announce = _silent,
) -> int:
    """Run a pool until it stops; gives its exit code, 0. Setting `stop` ends it; `ready` is set when it listens.

    Raises CannotStart: another pool holds the lock (exit code 3), the path is taken, a model was refused.
    """
    descriptor = lock(options.socket)
    try:
        check_free(options.socket)
        log = open_log(options.log)
        try:
            signals = Signals(stop or asyncio.Event(), ready or asyncio.Event(), announce)
            return await _serve_locked(options, load, log, signals)
        finally:
            await asyncio.to_thread(log.close)
    finally:
        os.close(descriptor)


async def _serve_locked(options: PoolOptions, load: Loader, log: Log, signals: Signals) -> int:
    limit = options.flags.memory_limit or memory_limit()
    members = Members(load, replace(options.flags, memory_limit=limit), log)
    contexts = Contexts(members, options.context_grace_s)
    pool = Pool(options, members, contexts, log, limit)
    try:
        if await _load_all(options.loads, members, signals):
            await _listen(pool, signals)
    finally:
        contexts.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await members.close()
        log.event("stopped")
    return 0


async def _load_all(loads: tuple[LoadSpec, ...], members: Members, signals: Signals) -> bool:
    """Load every `--load` in order; False when the pool was told to stop meanwhile. Raises CannotStart."""
    cancellation = Cancellation()
    async with _when(signals.stop, cancellation.cancel):
        for spec in loads:
            signals.announce(f"loading {spec.reference}")
            try:
                await members.load(
                    spec.reference, spec.member, members.flags, _announcer(signals.announce, spec), cancellation
                )
            except Refused as refusal:
                if cancellation.cancelled:
                    return False
                raise CannotStart(f"cannot load {spec.reference}: {refusal.message}") from refusal
    return not signals.stop.is_set()


async def _listen(pool: Pool, signals: Signals) -> None:
    listener = bind(pool.options.socket)
    try:
        members = ", ".join(state.member for state in pool.members.states()) or "no member"
        pool.log.event("listening", socket=str(listener.path), pid=os.getpid())
        signals.announce(f"listening on {listener.path} ({members})")
        pool.idle_since = time.monotonic()
        signals.ready.set()
        async with asyncio.TaskGroup() as group, _when(signals.stop, pool.request_stop):
            accepting = group.create_task(_accept(pool, listener, group))
            watching = group.create_task(_watch_idle(pool))
            trimming = group.create_task(_trim_after_large(pool))
            await pool.stop_requested.wait()
            await _settle(pool)
            accepting.cancel()
            watching.cancel()
            trimming.cancel()
            listener.remove()
            pool.all_answered.set()
            await pool.settled(FORCED_TIMEOUT_S, stops=True)
            await asyncio.gather(*(connection.close() for connection in tuple(pool.connections)))
    finally:
        listener.remove()
        listener.socket.close()


async def _accept(pool: Pool, listener: Listener, connections: asyncio.TaskGroup) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            accepted, _ = await loop.sock_accept(listener.socket)
        except OSError as error:
            pool.log.event("accept failed", reason=error.strerror)
            await asyncio.sleep(ACCEPT_RETRY_S)  # out of descriptors: some connection has to close first
            continue
        connections.create_task(_serve_connection(pool, accepted))


async def _serve_connection(pool: Pool, accepted: socket.socket) -> None:
    try:
        if not is_ours(uid := peer_uid(accepted)):
            pool.log.event("peer refused", uid=uid)
            accepted.close()
            return
        reader, writer = await asyncio.open_unix_connection(sock=accepted, limit=CHUNK_BYTES)
        await Connection(pool, reader, writer).run()
    except BaseException as error:
        if not is_fault(error):
            raise
        pool.log.failure("connection failed", error)


async def _watch_idle(pool: Pool) -> None:
    """Ask for the end when no connection was open for the timeout and nothing is being loaded."""
    timeout = pool.options.idle_timeout_s
    while timeout:
        await pool.vacant.wait()
        left = pool.idle_since + timeout - time.monotonic()
        if left <= 0 and not pool.members.loading:
            pool.log.event("idle", seconds=timeout)
            pool.request_stop()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(left, 0.5)):
                await pool.occupied.wait()


async def _trim_after_large(pool: Pool) -> None:
    """Large messages leave free pages behind, which the allocator keeps: give them back, now and then."""
    while True:
        await pool.had_large.wait()
        await asyncio.sleep(TRIM_EVERY_S)
        pool.had_large.clear()
        await asyncio.to_thread(trim)


async def _settle(pool: Pool) -> None:
    """See that every open request is answered: by itself, after a cancel, or by ending its task."""
    pool.log.event("stopping", open=len(pool.unanswered()))
    if pool.stop_grace_s and await pool.settled(pool.stop_grace_s):
        return
    for request in pool.unanswered():
        request.cancellation.cancel()
    if not await pool.settled(SETTLE_TIMEOUT_S):
        for request in pool.unanswered():
            if request.task:
                request.task.cancel()
        await pool.settled(FORCED_TIMEOUT_S)


@contextlib.asynccontextmanager
async def _when(event: asyncio.Event, action: Callable[[], None]) -> AsyncIterator[None]:
    """Inside the block, do `action` as soon as `event` is set."""

    async def wait() -> None:
        await event.wait()
        action()

    task = asyncio.create_task(wait())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def _announcer(announce: Announce, spec: LoadSpec) -> Callable[[Phase, int, int], None]:
    """Progress of a load as lines: one for each phase."""
    seen: set[Phase] = set()

    def report(phase: Phase, done: int, total: int) -> None:
        if phase not in seen:
            seen.add(phase)
            announce(f"{spec.reference}: {phase}")

    return report
