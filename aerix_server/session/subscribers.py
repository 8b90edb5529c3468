"""Who hears of a session: each thing that happens is told to all, and one who breaks is told nothing more."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from aerix_server.protocol.events import Event
from aerix_server.protocol.messages import PlanDecided, PlanProposed, SessionChanged

_log = logging.getLogger(__name__)


class Subscriber(Protocol):
    """Called in the event loop, after the log line is written; must not block."""

    def event(self, session: str, event: Event) -> None: ...

    def plan_proposed(self, note: PlanProposed) -> None: ...

    def plan_decided(self, note: PlanDecided) -> None: ...

    def session_changed(self, note: SessionChanged) -> None: ...


class Subscribers:
    """In the order they came."""

    def __init__(self) -> None:
        self._all: list[Subscriber] = []

    def add(self, subscriber: Subscriber) -> Callable[[], None]:
        """Gives the way out, which may be taken more than once."""
        self._all.append(subscriber)

        def leave() -> None:
            self._all = [other for other in self._all if other is not subscriber]

        return leave

    def tell(self, say: Callable[[Subscriber], None]) -> None:
        for subscriber in list(self._all):
            try:
                say(subscriber)
            except Exception:
                _log.exception("a subscriber failed and is told nothing more")
                self._all = [other for other in self._all if other is not subscriber]
