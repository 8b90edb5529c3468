"""The member's thread and its queue: it starts jobs in their order, as many at once as it may, and turns the batch."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from caldrix.engine.backend import EngineFailed
from caldrix.engine.batch import Batch
from caldrix.engine.deep import start_deep
from caldrix.engine.generate import Generation, Prepared
from caldrix.engine.jobs import Failed, Job, never_ran
from caldrix.engine.rates import Rates
from caldrix.engine.schedule import next_waiting, order, wait_seconds
from caldrix.engine.slot import Slot, engine_failed
from caldrix.protocol.messages import QueueInfo

log = logging.getLogger(__name__)

STARTS_KEPT = 64
"""How many starts tell whose turn it is."""
CLOSED = Failed("shutting_down", "the member is being unloaded or the pool is stopping")


class Worker:
    """One engine thread. `begin` makes a prepared job a generation; `finish` is the thread's last act."""

    def __init__(
        self,
        name: str,
        batch: Batch,
        rates: Rates,
        most: int,
        begin: Callable[[Prepared], Generation],
        finish: Callable[[], None],
    ) -> None:
        self._batch = batch
        batch.ended = self._not_running
        self._rates = rates
        self._most = most
        self._begin = begin
        self._finish = finish
        self._waiting: deque[Prepared] = deque()
        self._aside: list[Slot] = []
        self._running: list[Job] = []
        self._started: deque[str] = deque(maxlen=STARTS_KEPT)
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"engine-{name}", daemon=True)
        start_deep(self._thread)

    def submit(self, prepared: Prepared) -> None:
        with self._changed:
            if not self._closing:
                self._waiting.append(prepared)
                self._changed.notify()
                return
        prepared.job.deliver(CLOSED)

    def position(self, job: Job) -> int | None:
        """Jobs that start before this one, and 1 for those that run; 0 while it runs itself; None when it has ended."""
        with self._changed:
            if job in self._running:
                return 0
            waiting = [prepared.job for prepared in self._waiting]
            if job not in waiting:
                return None
            places = self._order(waiting)
            return places.index(waiting.index(job)) + (len(self._running) >= self._most)

    def expected_wait(self, job: Job) -> float | None:
        """Seconds until a waiting job starts, as far as can be told."""
        with self._changed:
            waiting = [prepared.job for prepared in self._waiting]
            if job not in waiting:
                return None
            places = self._order(waiting)
            before = [waiting[place] for place in places[: places.index(waiting.index(job))]]
            rows = sum(len(other.ids) for other in before)
            tokens = sum(other.max_new_tokens for other in [*self._running, *before])
            return wait_seconds(rows, tokens, self._most, self._rates.prefill, self._rates.decode)

    def _order(self, waiting: Sequence[Job]) -> list[int]:
        return order([job.client for job in waiting], [job.client for job in self._running], self._started)

    def queue(self) -> QueueInfo:
        with self._changed:
            return QueueInfo(running=len(self._running), waiting=len(self._waiting))

    def close(self) -> None:
        """Fail what waits, cancel what runs, and wait for the thread's end (one pass)."""
        with self._changed:
            self._closing = True
            dropped, self._waiting = list(self._waiting), deque()
            for job in self._running:
                job.cancel()
            self._changed.notify()
        for prepared in dropped:
            prepared.job.deliver(CLOSED)
        self._thread.join()

    def _run(self) -> None:
        while self._has_work():
            try:
                self._answer_cancelled()
                self._return_aside()
                self._start_waiting()
                self._aside += self._batch.turn()
            except BaseException as error:  # a native panic is no Exception, and this thread must live
                log.exception("a turn of the engine broke")
                self._batch.fail_all(self._aside, error)
                self._aside = []
            with self._changed:
                self._running = [slot.generation.job for slot in (*self._batch.slots, *self._aside)]
        try:
            self._finish()
        except Exception:
            log.exception("the engine's last act failed")

    def _has_work(self) -> bool:
        with self._changed:
            while not (self._waiting or self._running):
                if self._closing:
                    return False
                self._changed.wait()
            return True

    def _start_waiting(self) -> None:
        """Start jobs while they have room. One that waits for room is not overtaken."""
        while not self._aside and (prepared := self._take_next()):
            try:
                slot = self._batch.start(self._begin(prepared))
            except EngineFailed as error:
                self._not_running(prepared.job)
                prepared.job.deliver(engine_failed(error))
                continue
            except BaseException as error:
                log.exception("a job could not be started")
                self._not_running(prepared.job)
                prepared.job.deliver(engine_failed(type(error).__name__))
                continue
            if slot is None:
                with self._changed:
                    self._running.remove(prepared.job)
                    self._started.pop()
                    self._waiting.appendleft(prepared)
                return

    def _take_next(self) -> Prepared | None:
        """The job to start; those that do better to wait for rows which another computes just now are passed over."""
        with self._changed:
            if not self._waiting or len(self._running) >= self._most:
                return None
            ready = [prepared for prepared in self._waiting if not self._batch.computes_for(prepared.job.ids)]
            if not ready:
                return None
            clients = [prepared.job.client for prepared in ready]
            prepared = ready[next_waiting(clients, [job.client for job in self._running], self._started)]
            self._waiting.remove(prepared)
            self._running.append(prepared.job)
            self._started.append(prepared.job.client)
            return prepared

    def _not_running(self, job: Job) -> None:
        with self._changed:
            if job in self._running:
                self._running.remove(job)

    def _return_aside(self) -> None:
        while self._aside and self._batch.return_to(self._aside[0]):
            self._aside.pop(0)

    def _answer_cancelled(self) -> None:
        """Waiting jobs that were cancelled are answered between two passes, not when their turn comes."""
        with self._changed:
            cancelled = [prepared for prepared in self._waiting if prepared.job.cancelled]
            for prepared in cancelled:
                self._waiting.remove(prepared)
        for prepared in cancelled:
            prepared.job.deliver(never_ran(prepared.job))
        for slot in [slot for slot in self._aside if slot.generation.job.cancelled]:
            self._aside.remove(slot)
            self._batch.cancel(slot)
