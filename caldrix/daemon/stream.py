"""The frames of one generation before its last: what the engine says, and a beat while it says nothing."""

from __future__ import annotations

from collections.abc import Callable

from caldrix.daemon.members import Resident
from caldrix.engine.jobs import Job, Prefill, TextDelta
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Delta, Message, Progress, Queued

SILENT_BEATS = 3


class Stream:
    """Turns items into frames, and knows what to repeat so that no gap between two frames grows long."""

    def __init__(self, request_id: int, send: Callable[[Message], None], job: Job, resident: Resident) -> None:
        self._id = request_id
        self._send = send
        self._job = job
        self._resident = resident
        self._latest: Progress | Delta | None = None
        self._submitted = False
        self._beats_after_end = 0

    def announce(self) -> None:
        """The job was submitted: say at once what is ahead of it."""
        self._submitted = True
        if self._resident.engine.position(self._job):
            self._send(self._queued())

    def show(self, item: Prefill | TextDelta) -> None:
        match item:
            case Prefill(done=done, total=total, recomputed_from=start):
                self._latest = Progress(id=self._id, phase="prefill", done=done, total=total, recomputed_from=start)
            case TextDelta(text=text, tokens=tokens, forced=forced):
                self._latest = Delta(id=self._id, text=text, tokens=tokens, forced=forced)
        self._send(self._latest)

    def beat(self) -> None:
        """Nothing came for a while: repeat the place in the queue or the last progress; in decoding, an empty Delta.

        Raises Refused("engine_failed") when the engine has ended the job and its last word does not come.
        """
        if self._submitted and self._resident.engine.position(self._job) is None:
            self._beats_after_end += 1
            if self._beats_after_end >= SILENT_BEATS:
                raise Refused(
                    "engine_failed", f"the engine of member {self._resident.name!r} lost this generation; try again."
                )
        match self._latest:
            case None:
                self._send(self._queued())
            case Progress():
                self._send(self._latest)
            case Delta():
                self._send(Delta(id=self._id, text="", tokens=0, forced=0))

    def _queued(self) -> Queued:
        """Where the job stands, and about how long it will wait."""
        engine = self._resident.engine
        position = engine.position(self._job) if self._submitted else len(self._resident.requests) - 1
        expected = engine.expected_wait(self._job) if self._submitted else None
        return Queued(id=self._id, position=position or 0, waiting_s=None if expected is None else round(expected, 1))
