"""A remote member in a test: load it, ask it, and wait for its last item within a bound."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

from caldrix.engine.api import EngineMember, ServingFlags
from caldrix.engine.jobs import Failed, Finished, Item, Job, Part, TextDelta
from caldrix.remote.load import load_remote
from caldrix.remote.member import RemoteMember

BOUND_S = 60.0
HELLO = (Part("system", "Be brief."), Part("user", "Say hello."))


def load(reference: str, stall_s: float = 20.0, **flags: Any) -> RemoteMember:
    return load_remote(reference, ServingFlags(**flags), lambda phase, done, total: None, 0, stall_s)


class Asked:
    """A submitted job and what it delivered."""

    def __init__(self, member: EngineMember, parts: Sequence[Part] = HELLO, limit: int = 64, **fields: Any) -> None:
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self.items: list[Item] = []
        ids = member.render(parts).ids
        self.job = Job(ids, limit, self._queue.put, parts=tuple(parts), **fields)
        member.check(self.job)
        member.submit(self.job)

    def next(self) -> Item:
        item = self._queue.get(timeout=BOUND_S)
        self.items.append(item)
        return item

    def last(self) -> Finished | Failed:
        while True:
            item = self.next()
            if isinstance(item, Finished | Failed):
                assert self._queue.empty(), "nothing comes after the last item"
                return item

    def finished(self) -> Finished:
        item = self.last()
        assert isinstance(item, Finished), item
        assert "".join(delta.text for delta in self.deltas()) == item.text
        return item

    def failed(self) -> Failed:
        item = self.last()
        assert isinstance(item, Failed), item
        return item

    def deltas(self) -> list[TextDelta]:
        return [item for item in self.items if isinstance(item, TextDelta)]
