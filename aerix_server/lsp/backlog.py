"""What one client is still to be sent of one session: bounded, in order, live text merged."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from aerix_server.protocol.events import LIVE_TYPES, Event, ProgressEvent, TurnDelta, UsageEvent

BACKLOG_EVENTS: Final = 2000
"""Logged events kept for a client that does not read; beyond it they are read back from the log when it does."""


@dataclass(frozen=True)
class Note:
    """A notification that is no event. Never dropped: there are few, and no log to read them back from."""

    method: str
    params: dict[str, Any]


Marker = asyncio.Future[None]
Item = Event | Note | Marker


class Backlog:
    """A queue of events, notes and markers (futures that are resolved when all before them was sent).

    `lost` tells that logged events were dropped; whoever empties the queue must send them from the log first.
    """

    def __init__(self, limit: int = BACKLOG_EVENTS) -> None:
        self._limit = limit
        self._items: deque[Item] = deque()
        self._logged = 0
        self.lost = False

    def __len__(self) -> int:
        return len(self._items)

    def add(self, event: Event) -> None:
        last = self._items[-1] if self._items else None
        if (merged := merge(last, event)) is not None:
            self._items[-1] = merged
            return
        self._items.append(event)
        if event.type not in LIVE_TYPES:
            self._logged += 1
            if self._logged > self._limit:
                self._drop()

    def put(self, item: Note | Marker) -> None:
        self._items.append(item)

    def take(self) -> Item | None:
        """The next item, or None."""
        if not self._items:
            return None
        item = self._items.popleft()
        if _is_logged(item):
            self._logged -= 1
        return item

    def _drop(self) -> None:
        """Forget all that the log holds, and live text that is stale without it."""
        self._items = deque(item for item in self._items if _is_kept(item))
        self._logged = 0
        self.lost = True


def merge(last: Item | None, event: Event) -> Event | None:
    """One event in place of two: text of the same turn joined, the newer progress or usage; None: they stay two."""
    if isinstance(last, TurnDelta) and isinstance(event, TurnDelta):
        if (last.request, last.agent, last.turn, last.seq) == (event.request, event.agent, event.turn, event.seq):
            return event.model_copy(update={"text": last.text + event.text})
        return None
    if isinstance(last, ProgressEvent) and isinstance(event, ProgressEvent):
        same = (last.request, last.agent, last.phase) == (event.request, event.agent, event.phase)
        return event if same else None
    if isinstance(last, UsageEvent) and isinstance(event, UsageEvent):
        return event if (last.request, last.agent) == (event.request, event.agent) else None
    return None


def _is_logged(item: Item) -> bool:
    return not isinstance(item, Note | asyncio.Future) and item.type not in LIVE_TYPES


def _is_kept(item: Item) -> bool:
    return isinstance(item, Note | asyncio.Future) or item.type == "notice"
