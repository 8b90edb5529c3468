"""What waits to be sent on one connection.

A reader that is slow holds back nobody else and costs little memory: while its socket is full, the Deltas of a
generation are merged into one, and a newer Progress or Queued takes the place of the older.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from caldrix.protocol.errors import BadFrame
from caldrix.protocol.frames import Format, encode
from caldrix.protocol.messages import Delta, Error, Message, Progress, Queued, payload
from caldrix.protocol.text import encodable

WAITING_FRAMES = 256


def merge(older: Message, newer: Message) -> Message | None:
    """One frame that says what both say, or None where each must be sent. Both carry the same id. Pure."""
    if isinstance(older, Delta) and isinstance(newer, Delta):
        return Delta(
            id=newer.id,
            text=older.text + newer.text,
            tokens=older.tokens + newer.tokens,
            forced=older.forced + newer.forced,
        )
    if isinstance(older, Progress) and isinstance(newer, Progress):
        return newer if older.phase == newer.phase else None
    if isinstance(older, Queued) and isinstance(newer, Queued):
        return newer
    return None


def to_frame(message: Message, fmt: Format) -> bytes:
    """The message as bytes; one that no frame can hold becomes an Error that says so."""
    try:
        return encode(encodable(payload(message)), fmt)
    except BadFrame as error:
        return encode(
            payload(Error(id=message.id, code="bad_request", message=f"the answer is too large: {error}.")), fmt
        )


@dataclass(eq=False)
class _Slot:
    message: Message


class Outbox:
    def __init__(self) -> None:
        self._slots: deque[_Slot] = deque()
        self._latest: dict[int, _Slot] = {}
        self._discarding = False
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._sent = asyncio.Event()
        self._sent.set()

    def put(self, message: Message) -> None:
        """Queue a message, or merge it into the one of its request that still waits. Never blocks."""
        if self._discarding:
            return
        latest = self._latest.get(message.id)
        merged = merge(latest.message, message) if latest else None
        if latest and merged:
            latest.message = merged
            return
        slot = _Slot(message)
        self._slots.append(slot)
        self._latest[message.id] = slot
        self._filled.set()
        self._sent.clear()
        if len(self._slots) >= WAITING_FRAMES:
            self._room.clear()

    async def room(self) -> None:
        """Wait while too many frames wait: who sends requests without reading answers is not read either."""
        await self._room.wait()

    async def flush(self, timeout: float) -> bool:
        """Wait until everything was handed to the socket; False when `timeout` seconds were too short."""
        try:
            async with asyncio.timeout(timeout):
                await self._sent.wait()
        except TimeoutError:
            return False
        return True

    def discard(self) -> None:
        """The peer has gone: drop what waits and what will come."""
        self._discarding = True
        self._slots.clear()
        self._latest.clear()
        self._room.set()
        self._sent.set()

    async def run(self, writer: asyncio.StreamWriter, fmt: Callable[[], Format]) -> None:
        """Send until cancelled, or until the peer has gone."""
        try:
            while True:
                await self._filled.wait()
                self._filled.clear()
                while self._slots:
                    writer.write(to_frame(self._take(), fmt()))
                    await writer.drain()
                self._sent.set()
        except OSError:
            self.discard()
            writer.close()

    def _take(self) -> Message:
        slot = self._slots.popleft()
        if self._latest.get(slot.message.id) is slot:
            del self._latest[slot.message.id]
        if len(self._slots) < WAITING_FRAMES:
            self._room.set()
        return slot.message
