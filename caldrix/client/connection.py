"""A socket joined to the framer: messages out, and each reply to the queue of the request it belongs to."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from caldrix.protocol.errors import BadFrame, CaldrixError, ConnectionLost, Overdue, Refused
from caldrix.protocol.frames import Format, Framer, decode, encode
from caldrix.protocol.messages import Error, Message, Reply, parse_reply, payload
from caldrix.protocol.paths import check_socket_path
from caldrix.protocol.text import encodable

CHUNK_BYTES = 64 * 1024
LARGE_BODY_BYTES = 64 * 1024
CLOSE_TIMEOUT_S = 2.0


class Replies:
    """The answers to one request, in order."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Reply | CaldrixError] = asyncio.Queue()

    def put(self, item: Reply | CaldrixError) -> None:
        self._queue.put_nowait(item)

    async def next(self, timeout: float) -> Reply:
        """The next frame. Raises Refused for an Error, ConnectionLost, and Overdue after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                item = await self._queue.get()
        except TimeoutError:
            raise Overdue(f"the pool sent nothing for {timeout:g} seconds.") from None
        if isinstance(item, CaldrixError):
            raise item
        if isinstance(item, Error):
            raise to_refused(item)
        return item


class Connection:
    """Use `open_connection`. Ids are chosen here; a request's replies are read from `replies`, while it is open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fmt: Format) -> None:
        self._reader = reader
        self._writer = writer
        self._format: Format = fmt
        self._open: dict[int, Replies] = {}
        self._last_id = 0
        self._lost: CaldrixError | None = None
        self._receiving = asyncio.create_task(self._receive(), name="caldrix-client")

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    @property
    def lost(self) -> bool:
        """Whether the connection has ended."""
        return self._lost is not None

    @contextlib.contextmanager
    def replies(self, request_id: int) -> Iterator[Replies]:
        """The replies that carry this id, for as long as the block lasts; later ones are dropped."""
        replies = self._open[request_id] = Replies()
        if self._lost:
            replies.put(self._lost)
        try:
            yield replies
        finally:
            del self._open[request_id]

    async def send(self, message: Message, timeout: float) -> None:
        """Send one message; lone surrogates in its texts go as escapes.

        Raises BadFrame for one that is too large, ConnectionLost, and Overdue when the pool does not read.
        """
        if self._lost:
            raise self._lost
        frame = encode(encodable(payload(message)), self._format)
        try:
            async with asyncio.timeout(timeout):
                self._writer.write(frame)
                await self._writer.drain()
        except TimeoutError:
            raise Overdue(f"the pool read nothing for {timeout:g} seconds.") from None
        except OSError as error:
            raise ConnectionLost("the connection to the pool broke; is it still running?") from error

    async def aclose(self) -> None:
        """Hang up; what is still open ends with ConnectionLost."""
        self._receiving.cancel()
        await asyncio.wait({self._receiving})
        self._end(ConnectionLost("this connection to the pool was closed."))
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._writer.wait_closed()
        self._writer.transport.abort()

    async def ended(self, timeout: float) -> bool:
        """Wait until the pool hangs up; False when it has not within `timeout` seconds."""
        done, _ = await asyncio.wait({self._receiving}, timeout=timeout)
        return bool(done)

    async def _receive(self) -> None:
        framer = Framer(self._format)
        try:
            while data := await self._reader.read(CHUNK_BYTES):
                framer.feed(data)
                while (body := framer.next_body()) is not None:
                    large = len(body) > LARGE_BODY_BYTES
                    self._dispatch(
                        await asyncio.to_thread(_parse, body, framer.format) if large else _parse(body, framer.format)
                    )
            self._end(ConnectionLost("the pool closed the connection."))
        except OSError:
            self._end(ConnectionLost("the connection to the pool broke; is it still running?"))
        except (BadFrame, ValidationError) as error:
            self._end(ConnectionLost(f"the pool sent what this client does not understand ({type(error).__name__})."))

    def _dispatch(self, reply: Reply) -> None:
        if isinstance(reply, Error) and reply.code == "bad_frame":
            self._end(to_refused(reply))
        elif replies := self._open.get(reply.id):
            replies.put(reply)

    def _end(self, error: CaldrixError) -> None:
        if self._lost is None:
            self._lost = error
            for replies in self._open.values():
                replies.put(error)


async def open_connection(path: Path, fmt: Format, timeout: float) -> Connection:
    """Connect to the pool at `path`. Raises Refused for a path that is too long, ConnectionLost, Overdue."""
    check_socket_path(path)
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_unix_connection(os.fspath(path), limit=CHUNK_BYTES)
    except TimeoutError:
        raise Overdue(f"the pool at {path} accepted no connection within {timeout:g} seconds.") from None
    except OSError as error:
        raise ConnectionLost(f"no pool answers on {path} ({error.strerror or type(error).__name__}).") from error
    return Connection(reader, writer, fmt)


def to_refused(error: Error) -> Refused:
    """The exception that an Error stands for; a code this client does not know is kept as it is."""
    return Refused(error.code, error.message, error.detail)  # type: ignore[arg-type]


def _parse(body: bytes, fmt: Format) -> Reply:
    return parse_reply(decode(body, fmt))
