"""A connection of an attacker: what is sent and received on it is counted, kept and checked."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.fuzz.messages import Payload
from benchmarks.fuzz.streams import body_of, framed
from caldrix.protocol.errors import ERROR_CODES, CaldrixError
from caldrix.protocol.frames import Format, Framer, decode

ANSWER_S: Final = 90.0
"""A load, a compilation and a queue may stand before an answer; each has a bound of its own well below this."""
CHUNK: Final = 1 << 16
STREAMED: Final = ("Queued", "Progress", "Delta")
RECENT: Final = 64


class Offence(Exception):
    """The pool did what it must not."""


@dataclass
class Tally:
    """What was sent and what came back. `recent` are the last streams, for when the pool dies of one."""

    frames: int = 0
    connections: int = 0
    octets: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    recent: deque[bytes] = field(default_factory=lambda: deque(maxlen=RECENT))


@contextlib.contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    """A bare socket: asyncio's streams would lose what came when a later write fails."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.setblocking(True)
        connection.settimeout(ANSWER_S)
        connection.connect(str(path))
        connection.setblocking(False)
        yield connection


class Talk:
    """One connection, and what was sent on it."""

    def __init__(
        self,
        random: Random,
        name: str,
        fmt: Format,
        connection: socket.socket,
        tally: Tally,
        contexts: Collection[str] = (),
    ) -> None:
        """`contexts` are those that the client made."""
        self.random, self.name, self.fmt = random, name, fmt
        self.contexts = set(contexts)
        self.sent = bytearray()
        self._socket, self._tally = connection, tally
        self._framer = Framer()  # a spoiled first frame decides the format, too
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes, frames: int) -> None:
        """A pool that has hung up is no fault here: what it said before is still to be read."""
        self.sent += data
        self._tally.octets += len(data)
        self._tally.frames += frames
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(ANSWER_S):
                await self._loop.sock_sendall(self._socket, data)

    async def say(self, message: Payload) -> None:
        await self.send(framed(body_of(message, self.fmt)), 1)

    def no_more(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def receive(self) -> Payload | None:
        """The next answer, checked; None at the end of the connection. Raises Offence, TimeoutError."""
        async with asyncio.timeout(ANSWER_S):
            try:
                while (body := self._framer.next_body()) is None:
                    if not (data := await self._loop.sock_recv(self._socket, CHUNK)):
                        return None
                    self._framer.feed(data)
                message = decode(body, self._framer.format)
            except ConnectionError:
                return None
            except CaldrixError as error:
                raise Offence(f"the pool sent what is no frame: {error}") from error
        kind = _checked(message)
        if kind == "ContextInfo":
            self.contexts.add(message["context"])
        if kind not in STREAMED:
            self._tally.answers[kind] += 1
        return message


def _checked(message: Payload) -> str:
    """What the answer counts as. Raises Offence."""
    kind, code, said = message.get("type"), message.get("code"), message.get("message")
    if not isinstance(kind, str) or not isinstance(message.get("id"), int):
        raise Offence(f"an answer without a type or an id: {message!r:.200}")
    if kind != "Error":
        return kind
    if code not in ERROR_CODES or not isinstance(said, str) or not said.strip():
        raise Offence(f"an error without a known code or a sentence: {message!r:.200}")
    if "Traceback" in said or "failed inside" in said or len(said) > 5_000:
        raise Offence(f"an error that tells of the pool's own fault: {said:.300}")
    return str(code)
