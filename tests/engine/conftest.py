"""A member over the toy backend, and a way to run one job to its end."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from caldrix.engine.jobs import Failed, Finished, Item, Job, Part, Prefill, TextDelta
from caldrix.engine.member import LoadedMember, Serving
from caldrix.protocol.messages import Constraint, Sampling
from tests.doubles.toy_backend import Script, ToyBackend

BOUND_S = 60.0


@dataclass
class Run:
    """A job under way; its items arrive on a queue."""

    job: Job
    arrived: queue.Queue[Item]
    items: list[Item] = field(default_factory=list)

    def until(self, wanted: type[Item]) -> Item:
        while True:
            item = self.arrived.get(timeout=BOUND_S)
            self.items.append(item)
            if isinstance(item, (wanted, Failed)):
                return item

    def finished(self) -> Finished:
        last = self.until(Finished)
        assert isinstance(last, Finished), last
        return last

    @property
    def streamed(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, TextDelta))

    @property
    def prefills(self) -> list[Prefill]:
        return [item for item in self.items if isinstance(item, Prefill)]


def start(
    member: LoadedMember,
    parts: list[Part],
    *,
    tokens: int = 400,
    constraint: Constraint | None = None,
    sampling: Sampling | None = None,
    logprobs: int | None = None,
    client: str = "",
    draft: bool = True,
) -> Run:
    arrived: queue.Queue[Item] = queue.Queue()
    job = Job(
        member.render(parts).ids,
        tokens,
        arrived.put,
        constraint,
        sampling or Sampling(),
        logprobs,
        parts=parts,
        client=client,
        draft=draft,
    )
    member.check(job)
    member.submit(job)
    return Run(job, arrived)


@pytest.fixture
def open_member() -> Iterator[Callable[..., LoadedMember]]:
    """Members over a toy backend that wants to say the given replies; closed at the end."""
    opened: list[LoadedMember] = []

    def open_one(
        *replies: str,
        budget: int = 1 << 24,
        can_cut: bool = True,
        pace_s: float = 0.0,
        window: int = 100_000,
        batch: int = 1,
        cells: int = 0,
    ) -> LoadedMember:
        script = Script(list(replies), window=window, pace_s=pace_s)
        opened.append(LoadedMember(ToyBackend(script, can_cut=can_cut, cells=cells), Serving(budget, batch)))
        return opened[-1]

    yield open_one
    for member in opened:
        member.close()
