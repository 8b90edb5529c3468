"""`emit`: an event gets its place in the log, then it is published. Nothing is shown that the log does not hold."""

from __future__ import annotations

from pathlib import Path

from aerix_server.protocol.events import LIVE_TYPES, Event, dump_event
from aerix_server.session.clock import now
from aerix_server.session.log import LogFailed, LogWriter
from aerix_server.session.subscribers import Subscribers


class Journal:
    """The log of one session and those who follow it. Before `open`, only live kinds can be emitted."""

    def __init__(self, session: str, path: Path, subscribers: Subscribers) -> None:
        self._session = session
        self._path = path
        self._subscribers = subscribers
        self._writer: LogWriter | None = None
        self.last_seq = 0
        self.updated = now()

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    def open(self) -> list[str]:
        """Make or open the log; gives lines for the user. Blocking. Raises AerixError("session_locked"), LogFailed."""
        self._writer = LogWriter(self._path)
        self.last_seq = self._writer.last_seq
        return self._writer.notices

    def emit(self, event: Event) -> None:
        """Stamp, write unless it is a live kind, publish. Raises LogFailed."""
        if event.type in LIVE_TYPES:
            stamped = event.model_copy(update={"seq": self.last_seq, "time": now()})
        else:
            stamped = self._written(event)
        self._subscribers.tell(lambda subscriber: subscriber.event(self._session, stamped))

    def close(self) -> None:
        """Idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _written(self, event: Event) -> Event:
        if self._writer is None:
            raise LogFailed(f"The session's log {self._path} is not open.")
        line = self._writer.append(dump_event(event))
        self.last_seq, self.updated = line["seq"], line["time"]
        return event.model_copy(update={"seq": line["seq"], "time": line["time"]})
