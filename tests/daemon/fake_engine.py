"""An engine without a model: a real thread answers jobs with scripted text, one byte a token.

What it is told in the prompt's last segment decides what it does: `say TEXT` answers TEXT, `long` answers until its
limit, `hold` waits for `release` first, `fail` fails, `mute` never answers, `break` and `panic` raise in `render`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from caldrix.engine.api import LoadProgress, ServingFlags
from caldrix.engine.jobs import Failed, Finished, Job, Part, Prefill, Rendered, TextDelta
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Json, Member, QueueInfo, Rates, StoreInfo, TemplateInfo, Usage

HEADER = (-1,)
STEP_S = 0.001


class PanicException(BaseException):
    """As pyo3 raises for a panic in Rust: no Exception."""


class FakeMember:
    def __init__(self, window: int = 4096, footprint: int = 1000) -> None:
        self.window = window
        self.footprint = footprint
        self.remembered: dict[str, tuple[int, ...]] = {}
        self.rendered: list[tuple[Part, ...]] = []
        self.release = threading.Event()
        self.started = threading.Event()
        self.closed = threading.Event()
        self._jobs: list[Job] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def render(self, parts: Sequence[Part]) -> Rendered:
        if any(part.text == "break" for part in parts):
            raise KeyError("a secret text")
        if any(part.text == "panic" for part in parts):
            raise PanicException("a secret text")
        if any(part.text == "refuse" for part in parts):
            raise Refused("bad_request", "the template cannot render this")
        self.rendered.append(tuple(parts))
        bodies = [part.ids or tuple(part.text.encode()) for part in parts]
        return Rendered(ids=tuple(token for body in bodies for token in body) + HEADER, counts=tuple(map(len, bodies)))

    def check(self, job: Job) -> None:
        if isinstance(job.constraint, Json) and job.constraint.schema_ == {"type": "nope"}:
            raise Refused("constraint_invalid", "type: unknown type nope")

    def submit(self, job: Job) -> None:
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()

    def position(self, job: Job) -> int | None:
        with self._changed:
            return self._jobs.index(job) if job in self._jobs else None

    def expected_wait(self, job: Job) -> float | None:
        return None

    def status(self, name: str, *, status: Literal["ready", "unloading"] = "ready") -> Member:
        with self._changed:
            running, waiting = min(1, len(self._jobs)), max(0, len(self._jobs) - 1)
        return Member(
            member=name,
            model="fake",
            status=status,
            lane="cpu",
            threads=1,
            window=self.window,
            footprint_bytes=self.footprint,
            context_budget_bytes=10,
            constraints=["OneOf", "Json", "Regex", "Lark"],
            template=TemplateInfo(source="plain", system="native", alternates=False, prefix_stable=True),
            queue=QueueInfo(running=running, waiting=waiting),
            store=StoreInfo(entries=0, bytes=0, hits=0, misses=0, evicted=0),
            rates=Rates(),
        )

    def remember(self, text: str, ids: tuple[int, ...]) -> None:
        self.remembered[text] = ids

    def close(self) -> None:
        with self._changed:
            self.closed.set()
            for job in self._jobs:
                job.cancel()
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while job := self._next():
            self._serve(job)
            with self._changed:
                self._jobs.remove(job)

    def _next(self) -> Job | None:
        with self._changed:
            while not self._jobs:
                if self.closed.is_set():
                    return None
                self._changed.wait()
            return self._jobs[0]

    def _serve(self, job: Job) -> None:
        self.started.set()
        prompt = bytes(token for token in job.ids if token >= 0)
        total = len(job.ids)
        if prompt.endswith(b"mute"):
            return
        job.deliver(Prefill(0, total, 0))
        if prompt.endswith(b"fail"):
            job.deliver(Failed("engine_failed", "the engine broke"))
            return
        if prompt.endswith(b"hold"):
            while not self.release.wait(STEP_S) and not job.cancelled:
                pass
        job.deliver(Prefill(total, total, 0))
        said = prompt.rpartition(b"say ")[2] if b"say " in prompt else b"x" * 10**6
        text = ""
        while len(text) < min(len(said), job.max_new_tokens) and not job.cancelled:
            text += chr(said[len(text)])
            job.deliver(TextDelta(text[-1], 1, 0))
            if len(said) == 10**6:
                self.closed.wait(STEP_S)
        finish: Literal["stop", "length", "cancelled"] = "stop" if len(text) == len(said) else "length"
        usage = Usage(
            prompt_tokens=total,
            recomputed_from=0,
            completion_tokens=len(text),
            forced_tokens=0,
            drafted_tokens=0,
            accepted_tokens=0,
        )
        ids = tuple(1000 + ord(character) for character in text)
        job.deliver(Finished("cancelled" if job.cancelled else finish, text, ids, usage, 1, 2, 3))


@dataclass
class FakeLoader:
    """Gives FakeMembers, in order of loading kept in `members`. `gates` hold back the load of a reference."""

    window: int = 4096
    members: list[FakeMember] = field(default_factory=list)
    flags: list[ServingFlags] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    gates: dict[str, threading.Event] = field(default_factory=dict)
    events: queue.Queue[str] = field(default_factory=queue.Queue)
    on_load: Callable[[str], None] | None = None

    def __call__(self, reference: str, flags: ServingFlags, progress: LoadProgress, used_bytes: int) -> FakeMember:
        self.events.put(reference)
        if reference.endswith("missing"):
            raise Refused("model_not_found", f"there is no model {reference}")
        if reference.endswith("bug"):
            raise ValueError("unforeseen")
        progress("download", 0, 10)
        while (gate := self.gates.get(reference)) and not gate.wait(STEP_S):
            progress("download", 5, 10)
        progress("load", 10, 10)
        self.flags.append(flags)
        self.used.append(used_bytes)
        self.members.append(FakeMember(self.window))
        return self.members[-1]
