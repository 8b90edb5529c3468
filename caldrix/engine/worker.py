"""The member's thread: it takes jobs in queue order, drives each to its end and delivers every item to its job."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from caldrix.engine.backend import EngineFailed
from caldrix.engine.generate import Prepared
from caldrix.engine.jobs import Failed, Finished, Item, Job
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import QueueInfo, Usage

log = logging.getLogger(__name__)

CLOSED = Failed("shutting_down", "the member is being unloaded or the pool is stopping")


class Worker:
    """One engine thread with its queue. `drive` makes the items of a prepared job; only this thread calls it."""

    def __init__(self, name: str, drive: Callable[[Prepared], Iterator[Item]]) -> None:
        self._drive = drive
        self._waiting: deque[Prepared] = deque()
        self._running: Prepared | None = None
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"engine-{name}", daemon=True)
        self._thread.start()

    def submit(self, prepared: Prepared) -> None:
        with self._changed:
            if not self._closing:
                self._waiting.append(prepared)
                self._changed.notify()
                return
        prepared.job.deliver(CLOSED)

    def position(self, job: Job) -> int | None:
        """Jobs ahead of this one; 0 while it runs; None when it has ended."""
        with self._changed:
            if self._running is not None and self._running.job is job:
                return 0
            for place, prepared in enumerate(self._waiting, start=1):
                if prepared.job is job:
                    return place if self._running is not None else place - 1
            return None

    def queue(self) -> QueueInfo:
        with self._changed:
            return QueueInfo(running=int(self._running is not None), waiting=len(self._waiting))

    def close(self) -> None:
        """Fail what waits, cancel what runs, and wait for the thread's end (one pass)."""
        with self._changed:
            self._closing = True
            dropped, self._waiting = list(self._waiting), deque()
            if self._running is not None:
                self._running.job.cancel()
            self._changed.notify()
        for prepared in dropped:
            prepared.job.deliver(CLOSED)
        self._thread.join()

    def _run(self) -> None:
        while (prepared := self._next()) is not None:
            self._serve(prepared)
            with self._changed:
                self._running = None

    def _next(self) -> Prepared | None:
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._changed.wait()
            self._running = self._waiting.popleft()
            return self._running

    def _serve(self, prepared: Prepared) -> None:
        job = prepared.job
        if job.cancelled:
            job.deliver(cancelled_before_start(job))
            return
        try:
            for item in self._drive(prepared):
                job.deliver(item)
                self._answer_cancelled()
        except Refused as refused:
            job.deliver(Failed(refused.code, refused.message))
        except EngineFailed as failed:
            log.error("a generation failed: %s", failed)
            job.deliver(Failed("engine_failed", f"the engine failed: {failed}. The request can be tried again."))
        except Exception as error:
            log.exception("a generation broke")
            job.deliver(Failed("engine_failed", f"the engine broke ({type(error).__name__}); the pool's log has more"))

    def _answer_cancelled(self) -> None:
        """Waiting jobs that were cancelled are answered between two passes, not when their turn comes."""
        with self._changed:
            cancelled = [prepared for prepared in self._waiting if prepared.job.cancelled]
            for prepared in cancelled:
                self._waiting.remove(prepared)
        for prepared in cancelled:
            prepared.job.deliver(cancelled_before_start(prepared.job))


def cancelled_before_start(job: Job) -> Finished:
    """The end of a job that never ran."""
    usage = Usage(
        prompt_tokens=len(job.ids),
        recomputed_from=0,
        completion_tokens=0,
        forced_tokens=0,
        drafted_tokens=0,
        accepted_tokens=0,
    )
    waited = round(1000 * (time.monotonic() - job.submitted))
    return Finished("cancelled", "", (), usage, queued_ms=waited, prefill_ms=0, decode_ms=0)
