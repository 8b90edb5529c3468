"""The generations that run on a member, and one turn of them: join their asks into a pass, compute, let each go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np

from caldrix.engine.backend import MAX_OUTPUT_ROWS, MIN_PASS_ROWS, Backend, EngineFailed, Logits, NoRoom
from caldrix.engine.deep import deep_pool
from caldrix.engine.generate import Branch, Cancelled, Compute, Generation
from caldrix.engine.jobs import Failed, Finished, Item, Job, Prefill
from caldrix.engine.oneof import Pieces
from caldrix.engine.pace import Paces
from caldrix.engine.prefix import as_ids, common_prefix
from caldrix.engine.rates import Rates
from caldrix.engine.schedule import Need, plan_pass
from caldrix.engine.sequences import Sequences
from caldrix.engine.slot import Slot, count_rows, engine_failed, is_broken
from caldrix.protocol.errors import Refused

log = logging.getLogger(__name__)

WORTH_WAITING_ROWS = 64
"""Rows for which a prompt waits while another one computes them. Fewer are computed twice sooner than waited for."""


class Batch:
    """Owned by the engine thread. `ended` is told of each job just before its last item."""

    def __init__(
        self, backend: Backend, sequences: Sequences, rates: Rates, paces: Paces, keep_saved: bool, name: str
    ) -> None:
        self._backend = backend
        self._sequences = sequences
        self._rates = rates
        self._paces = paces
        self.keeps = keep_saved
        self._masks = deep_pool(f"masks-{name}")
        self.slots: list[Slot] = []
        self.ended: Callable[[Job], None] = lambda job: None

    def start(self, generation: Generation) -> Slot | None:
        """Begin a generation where its prompt's rows have room, else None. One that ends at once is no slot."""
        ids = list(generation.job.ids)
        slot = Slot(generation, generation.steps(), ids=ids, wanted=1)
        generation.started = time.monotonic()
        if not self._place(slot, len(ids) - (MIN_PASS_ROWS if self._sequences.can_cut else 1)):
            return None
        assert slot.sequence is not None
        generation.resumed = self._sequences.rows(slot.sequence)
        slot.checkpoint = self._sequences.checkpoint(ids, generation.resumed)
        self.slots.append(slot)
        generation.job.deliver(Prefill(generation.resumed, len(ids), generation.resumed))
        self._advance(slot, None)
        return slot

    def computes_for(self, ids: Sequence[int]) -> bool:
        """Is a prompt being read that begins as `ids` do, so that it is better to wait for its rows and share them?"""
        reading = [slot for slot in self.slots if not slot.filled and self._missing(slot)]
        if not reading or not self._sequences.can_cut:
            return False
        known = self._sequences.known(ids)
        for slot in reading:
            shared = min(common_prefix(as_ids(slot.ids), as_ids(ids)), len(ids) - MIN_PASS_ROWS)
            if shared >= known + WORTH_WAITING_ROWS and len(slot.ids) - self._missing(slot) < shared:
                return True
        return False

    def return_to(self, slot: Slot) -> bool:
        """Go on with a generation that was set aside, where there is room."""
        asked = 0 if slot.runs is not None else max(1, slot.wanted)
        if not self._place(slot, len(slot.ids) - asked):
            return False
        assert slot.sequence is not None
        slot.got, slot.served = [], 0
        if not slot.filled:
            slot.checkpoint = self._sequences.checkpoint(slot.ids, self._sequences.rows(slot.sequence))
        self.slots.append(slot)
        return True

    def turn(self) -> list[Slot]:
        """One pass for all that run, and one for a generation that scores options. Gives those set aside meanwhile."""
        for slot in list(self.slots):
            if slot.generation.job.cancelled:
                self.cancel(slot)
        aside = self._pass()
        ready = [slot for slot in self.slots if slot.runs is not None and not self._missing(slot)]
        if ready:
            # There are branches for one at a time, so who has begun ends first.
            aside += self._branch_on(next((slot for slot in ready if slot.branching is not None), ready[0]))
        self.slots = [*self.slots[1:], *self.slots[:1]]  # so that none is always the first
        return aside

    def fail_all(self, aside: Sequence[Slot], error: BaseException) -> None:
        """After a bug: answer every generation, those set aside as well."""
        for slot in [*self.slots, *aside]:
            self._fail(slot, engine_failed(f"{type(error).__name__}; the pool's log has more"))

    def close(self) -> None:
        self._masks.shutdown()

    def _place(self, slot: Slot, most: int) -> bool:
        owed = sum(self._owed(other) for other in self.slots)
        rows = self._sequences.fresh_rows(slot.ids, most) + MIN_PASS_ROWS + owed
        if self.slots and self._sequences.room() < rows:
            return False
        try:
            slot.sequence = self._sequences.resume(slot.ids, most)
        except NoRoom:
            if not self.slots:
                raise EngineFailed(f"{rows} rows have no room") from None
            return False
        return True

    def _pass(self) -> list[Slot]:
        computing = [slot for slot in self.slots if self._missing(slot)]
        if not computing:
            return []
        plan = plan_pass([self._need(slot) for slot in computing], self._chunk)
        parts = [(slot, rows) for slot, rows in zip(computing, plan, strict=True) if rows]
        try:
            answers = self._decode(parts)
        except NoRoom as error:
            return self._set_aside(error) + self._pass()  # at once, so that every turn brings somebody on
        except EngineFailed as error:
            log.error("a pass failed: %s", error)
            for slot, _ in parts:
                self._fail(slot, engine_failed(error))
            return []
        for (slot, rows), logits in zip(parts, answers, strict=True):
            self._take(slot, rows, logits)
        return []

    def _decode(self, parts: Sequence[tuple[Slot, int]]) -> list[Logits]:
        passes = []
        for slot, rows in parts:
            assert slot.sequence is not None
            start = self._sequences.rows(slot.sequence)
            end = start + rows
            passes.append((slot.sequence, slot.ids[start:end], max(0, min(rows, end - (len(slot.ids) - slot.wanted)))))
        count = sum(rows for _, rows in parts)
        threads = self._paces.threads(count)
        self._backend.set_threads(threads)
        side: list[Future[None]] = [
            self._masks.submit(slot.meanwhile) for slot, rows in parts if slot.meanwhile and rows == self._missing(slot)
        ]
        started = time.perf_counter()
        try:
            answers = self._sequences.decode(passes)
            seconds = time.perf_counter() - started
        finally:
            for future in side:
                if error := future.exception():  # it comes up again where the mask is used, and ends that one only
                    log.warning("a mask could not be computed ahead: %s", error)
        if not self._paces.trying(count):
            self._rates.note(count, seconds)
        self._paces.note(count, threads, seconds)
        return answers

    def _take(self, slot: Slot, rows: int, logits: Logits) -> None:
        """A slot's rows of a pass have come: tell of it, and go on when its ask is answered."""
        slot.served += rows
        if is_broken(logits):
            self._fail_broken(slot)
            return
        if logits.size:
            slot.got.append(logits)
        job, left = slot.generation.job, self._missing(slot)
        assert slot.sequence is not None
        if not slot.filled:
            job.deliver(Prefill(len(slot.ids) - left, len(slot.ids), slot.generation.resumed))
            slot.filled = not left
            if slot.checkpoint is not None and self._sequences.rows(slot.sequence) == slot.checkpoint:
                self._sequences.save(slot.sequence)
                slot.checkpoint = None
        if not left and slot.runs is None:
            answer = np.concatenate(slot.got) if len(slot.got) != 1 else slot.got[0]
            slot.got = []
            self._advance(slot, answer)

    def _advance(self, slot: Slot, answer: Logits | Pieces | None) -> None:
        """Send an answer and see what is asked next; items on the way are delivered."""
        self._step(slot, lambda: slot.steps.send(answer))

    def cancel(self, slot: Slot) -> None:
        """End a generation whose job was cancelled; what it gave so far is its output."""
        self._leave_branches(slot)
        self._step(slot, lambda: slot.steps.throw(Cancelled()))

    def _step(self, slot: Slot, step: Callable[[], Item | Compute | Branch]) -> None:
        try:
            while True:
                match step():
                    case Compute() as ask:
                        if self._asked(slot, ask):
                            return
                        step = lambda: slot.steps.send(np.empty((0, 0), np.float32))  # noqa: E731
                    case Branch(runs=runs):
                        self._asked_branches(slot, runs)
                        return
                    case item:
                        slot.generation.job.deliver(item)
                        step = lambda: next(slot.steps)  # noqa: E731
        except StopIteration as end:
            self._end(slot, end.value)
        except Refused as refused:
            self._end(slot, Failed(refused.code, refused.message))
        except EngineFailed as failed:
            self._end(slot, engine_failed(failed))
        except BaseException as error:  # a native panic is no Exception
            log.exception("a generation broke")
            self._end(
                slot, Failed("engine_failed", f"the engine broke ({type(error).__name__}); the pool's log has more")
            )

    def _asked(self, slot: Slot, ask: Compute) -> bool:
        """Note what is to be computed; False when there is nothing."""
        self._leave_branches(slot)
        if slot.sequence is not None:
            self._sequences.keep(slot.sequence, ask.keep)
        slot.ids[ask.keep :] = ask.tokens
        slot.wanted, slot.meanwhile, slot.served = ask.wanted, ask.meanwhile, 0
        return bool(ask.tokens)

    def _asked_branches(self, slot: Slot, runs: Sequence[Sequence[int]] | None) -> None:
        if runs is not None:
            self._leave_branches(slot)
            slot.runs, slot.wanted = runs, 0

    def _branch_on(self, slot: Slot) -> list[Slot]:
        """The next rows of a generation's branches; where they have no room, another is set aside for them first."""
        assert slot.runs is not None and slot.sequence is not None
        short = NoRoom(f"{count_rows(slot.runs)} rows of options have no room beside the prompt")
        if len(self.slots) > 1 and self._sequences.room() < count_rows(slot.runs):
            return self._set_aside(short, stays=slot) + self._branch_on(slot)
        if slot.branching is None:
            slot.branching = self._sequences.branch(slot.sequence, slot.runs)
        try:
            pieces = next(slot.branching, [])
        except (NoRoom, EngineFailed) as error:
            self._fail(slot, engine_failed(error))
            return []
        if any(is_broken(logits) for _, logits in pieces):
            self._fail_broken(slot)
        else:
            self._advance(slot, pieces)
        return []

    def _leave_branches(self, slot: Slot) -> None:
        if slot.branching is not None:
            slot.branching.close()  # type: ignore[attr-defined]
        slot.branching = slot.runs = None

    def _set_aside(self, error: NoRoom, stays: Slot | None = None) -> list[Slot]:
        """The one that came last makes room: its rows go to the store, and it goes on when there is room again."""
        movable = [slot for slot in self.slots if slot.branching is None and slot is not stays]
        if len(self.slots) < 2 or not movable:
            for slot in list(self.slots):
                self._fail(slot, engine_failed(error))
            return []
        slot = max(movable, key=lambda slot: slot.generation.started)
        assert slot.sequence is not None
        self._sequences.put_away(slot.sequence)
        slot.sequence = None
        self.slots.remove(slot)
        return [slot]

    def _fail(self, slot: Slot, failed: Failed) -> None:
        slot.steps.close()
        self._end(slot, failed)

    def _fail_broken(self, slot: Slot) -> None:
        """Its rows may be what is broken, so none of them is kept for another try."""
        self._leave_branches(slot)
        assert slot.sequence is not None
        self._sequences.keep(slot.sequence, 0)
        self._fail(slot, engine_failed("a pass gave logits that are no numbers"))

    def _end(self, slot: Slot, last: Finished | Failed) -> None:
        self._leave_branches(slot)
        if slot in self.slots:
            self.slots.remove(slot)
        if slot.sequence is not None:
            if self.keeps:
                self._keep(slot.sequence)
            self._sequences.rest(slot.sequence)
            slot.sequence = None
        slot.done = True
        self.ended(slot.generation.job)
        slot.generation.job.deliver(last)

    def _missing(self, slot: Slot) -> int:
        return 0 if slot.sequence is None else len(slot.ids) - self._sequences.rows(slot.sequence)

    def _keep(self, sequence: int) -> None:
        """What cannot be stored costs a later prefill, never this generation's answer."""
        try:
            self._sequences.save(sequence)
        except Exception:
            log.exception("a sequence could not be stored")

    def _owed(self, slot: Slot) -> int:
        """Cells that a generation is about to take."""
        return self._missing(slot) + (count_rows(slot.runs) if slot.runs is not None else 0)

    def _need(self, slot: Slot) -> Need:
        left = self._missing(slot)
        stop = MAX_OUTPUT_ROWS if slot.wanted > MAX_OUTPUT_ROWS else None
        if slot.checkpoint is not None:
            stop = slot.checkpoint - (len(slot.ids) - left)
        return Need(left, slot.served, stop, slot.filled)

    def _chunk(self, remaining: int, shared: bool) -> int:
        return self._rates.chunk(remaining, shared=shared)
