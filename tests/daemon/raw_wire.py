"""Bytes on a pool's socket, without the client: for frames that it would never send."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import cbor2

from tests.daemon.daemon_pool import BOUND_S


class RawWire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fmt: str = "cbor") -> None:
        self.reader = reader
        self.writer = writer
        self.fmt = fmt

    @classmethod
    async def open(cls, path: Path, fmt: str = "cbor") -> RawWire:
        return cls(*await asyncio.open_unix_connection(path), fmt)

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def send(self, **message: Any) -> None:
        body = cbor2.dumps(message) if self.fmt == "cbor" else json.dumps(message).encode()
        self.write(frame(body))

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(BOUND_S):
            (size,) = struct.unpack(">I", await self.reader.readexactly(4))
            body = await self.reader.readexactly(size)
        message: dict[str, Any] = cbor2.loads(body) if self.fmt == "cbor" else json.loads(body)
        return message

    async def answer(self, identity: int) -> dict[str, Any]:
        """The last answer to a request; the frames before it are dropped."""
        while True:
            message = await self.receive()
            if message["id"] == identity and message["type"] not in ("Queued", "Progress", "Delta"):
                return message

    async def hello(self, **changes: Any) -> dict[str, Any]:
        fields = {"id": 0, "version": 2, "client": {"name": "raw", "version": "1"}, "client_id": "raw"}
        self.send(type="Hello", **(fields | changes))
        return await self.receive()

    async def closed(self) -> bool:
        """Whether the pool hung up, and sent nothing more."""
        async with asyncio.timeout(BOUND_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def aclose(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body
