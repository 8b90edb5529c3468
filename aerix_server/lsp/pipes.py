"""The two protocol pipes, each on a daemon thread of its own: the loop never blocks on a client that does not read,
and a thread that waits for a silent client never holds up the end of the process."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import select
import threading
from collections.abc import AsyncIterator, Callable
from typing import Final

logger = logging.getLogger(__name__)

CHUNK: Final = 64 * 1024
CHUNKS_AHEAD: Final = 16
"""Chunks read before the loop has taken the first of them."""
ROOM_BYTES: Final = 256 * 1024
"""Unwritten bytes above which notifications wait."""


async def read_chunks(fd: int) -> AsyncIterator[bytes]:
    """What the client sends, until the end of file. Never raises for a broken pipe: that is an end, too."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    ahead = threading.Semaphore(CHUNKS_AHEAD)

    def read() -> None:
        data = b"more"
        while data:
            ahead.acquire()
            data = _read_some(fd)
            if not _call(loop, chunks.put_nowait, data):
                return

    threading.Thread(target=read, name="lsp-read", daemon=True).start()
    while data := await chunks.get():
        ahead.release()
        yield data


class FrameWriter:
    """Writes in order, without blocking. `broken` is called in the loop, once, when the client no longer reads."""

    def __init__(self, fd: int, broken: Callable[[], None]) -> None:
        self._fd = fd
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._closed = asyncio.Event()
        threading.Thread(target=self._run, name="lsp-write", daemon=True).start()

    def write(self, data: bytes) -> None:
        """To be called in the loop. What comes after the pipe broke is dropped."""
        if self._closed.is_set():
            return
        self._bytes += len(data)
        if self._bytes > ROOM_BYTES:
            self._room.clear()
        self._waiting.put(data)

    async def room(self) -> None:
        """Wait until the client has read enough; a broken pipe has room for everything."""
        await self._room.wait()

    def close(self) -> None:
        """Nothing more will be written."""
        self._waiting.put(None)

    async def finish(self, timeout_s: float) -> None:
        """Close, and wait at most `timeout_s` until what waits is written."""
        self.close()
        try:
            async with asyncio.timeout(timeout_s):
                await self._closed.wait()
        except TimeoutError:
            logger.warning("the client did not read its last %d bytes", self._bytes)

    def _run(self) -> None:
        while (data := self._waiting.get()) is not None:
            try:
                _write_all(self._fd, data)
            except OSError as error:
                logger.info("the client no longer reads: %s", error)
                _call(self._loop, self._finished, True)
                return
            if not _call(self._loop, self._wrote, len(data)):
                return
        _call(self._loop, self._finished, False)

    def _wrote(self, count: int) -> None:
        self._bytes -= count
        if self._bytes <= ROOM_BYTES:
            self._room.set()

    def _finished(self, broke: bool) -> None:
        self._closed.set()
        self._room.set()
        if broke:
            self._broken()


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: object) -> bool:
    """Run in the loop; False when the loop is closed, which is no fault at the end of the process."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True


def _read_some(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            select.select([fd], [], [])
        except OSError as error:
            logger.info("the client is gone: %s", error)
            return b""


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            select.select([], [fd], [])
