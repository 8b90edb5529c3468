"""The member's thread: an event loop in which at most `slots` generations run, the others waiting in a fair queue."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Final

from caldrix.engine.jobs import Failed, Finished, Item, Job, never_ran
from caldrix.protocol.messages import QueueInfo
from caldrix.remote.fairness import FairQueue
from caldrix.remote.generate import Prepared

log = logging.getLogger(__name__)

CLOSED: Final = Failed("shutting_down", "the member is being unloaded or the pool is stopping")
LOOK_S: Final = 0.05
"""How often it is looked whether a job was cancelled."""
CLOSE_S: Final = 10.0

Serve = Callable[[Prepared], Awaitable[Finished | Failed]]
"""Serves one job to its end; gives its last item. Cancelled, it gives a cancelled Finished."""


class Runner:
    def __init__(self, name: str, serve: Serve, slots: int) -> None:
        self._serve = serve
        self._slots = slots
        self._lock = threading.Lock()
        self._waiting = FairQueue()
        self._prepared: dict[Job, Prepared] = {}
        self._running: dict[Job, asyncio.Task[None]] = {}
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._look: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._run, name=f"remote-{name}", daemon=True)
        self._thread.start()

    def submit(self, prepared: Prepared) -> None:
        with self._lock:
            if not self._closing:
                self._prepared[prepared.job] = prepared
                self._waiting.add(prepared.job)
                self._loop.call_soon_threadsafe(self._advance)
                return
        prepared.job.deliver(CLOSED)

    def position(self, job: Job) -> int | None:
        """Jobs ahead of this one; 0 while it runs; None when it has ended."""
        with self._lock:
            if job in self._running:
                return 0
            place = self._waiting.place(job)
            if place is None:
                return None
            return place if len(self._running) >= self._slots else place - 1

    def queue(self) -> QueueInfo:
        with self._lock:
            return QueueInfo(running=len(self._running), waiting=len(self._waiting))

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """Fail what waits, cancel what runs, await `last` in the loop and end the thread. Blocks, within CLOSE_S."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            dropped = self._waiting.jobs()
            for job in dropped:
                self._waiting.remove(job)
                del self._prepared[job]
        for job in dropped:
            job.deliver(CLOSED)
        asyncio.run_coroutine_threadsafe(self._finish(last), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _advance(self) -> None:
        with self._lock:
            while len(self._running) < self._slots and (job := self._waiting.take()):
                prepared = self._prepared.pop(job)
                self._running[job] = self._loop.create_task(self._drive(prepared), name="remote generation")
            busy = bool(self._running or len(self._waiting))
        if busy and self._look is None:
            self._look = self._loop.call_later(LOOK_S, self._look_around)

    def _look_around(self) -> None:
        """End what was cancelled meanwhile."""
        self._look = None
        with self._lock:
            for job, task in self._running.items():
                if job.cancelled and not task.cancelling():
                    task.cancel()
            dropped = [job for job in self._waiting.jobs() if job.cancelled]
            for job in dropped:
                self._waiting.remove(job)
                del self._prepared[job]
        for job in dropped:
            job.deliver(never_ran(job))
        self._advance()

    async def _drive(self, prepared: Prepared) -> None:
        job = prepared.job
        item: Item = never_ran(job)
        try:
            if not job.cancelled:
                item = await self._serve(prepared)
        except asyncio.CancelledError:
            pass  # before it was served: it never ran
        except Exception as error:
            log.exception("a remote generation broke")
            item = Failed("engine_failed", f"the member broke ({type(error).__name__}); the pool's log has more")
        try:
            job.deliver(item)
        finally:
            with self._lock:
                del self._running[job]
            self._advance()

    async def _finish(self, last: Callable[[], Awaitable[None]]) -> None:
        with self._lock:
            tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        if self._look is not None:
            self._look.cancel()
        await last()
