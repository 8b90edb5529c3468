"""JSON-RPC over two streams: requests with answers, and the server's notifications in the order they came."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any, Final

NOTES_AHEAD: Final = 1000
"""Notifications read before the first of them was taken; then the server waits."""
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602


class RpcError(Exception):
    """The server's answer is an error. `name` is one of the protocol's error names, or ""."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.code = int(error.get("code", 0))
        self.message = str(error.get("message", ""))
        data = error.get("data")
        self.name = str(data.get("code", "")) if isinstance(data, dict) else ""
        self.hint = str(data.get("hint") or "") if isinstance(data, dict) else ""
        super().__init__(self.message)

    @property
    def sentence(self) -> str:
        return f"{self.message} {self.hint}".strip()


class ServerGone(Exception):
    """The server ended, or wrote what is no frame, before it answered."""


class Rpc:
    """One connection. `run` reads until the server's end; everything else may be called meanwhile."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._gone = False
        self._deaf = False
        self.notes: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(NOTES_AHEAD)

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        """The result. Raises RpcError and ServerGone."""
        if self._gone:
            raise ServerGone
        number = next(self._ids)
        future = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            return await future
        finally:
            self._open.pop(number, None)

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def stop_listening(self) -> None:
        """Drop notifications from now on, so that answers still come when nobody takes them."""
        self._deaf = True
        while not self.notes.empty():
            self.notes.get_nowait()

    async def run(self) -> None:
        """Read until the end of the stream; requests still open then raise ServerGone."""
        try:
            while True:
                await self._take(await self._message())
        except (asyncio.IncompleteReadError, ConnectionError, ValueError, asyncio.LimitOverrunError):
            pass
        finally:
            self._gone = True
            for future in self._open.values():
                if not future.done():
                    future.set_exception(ServerGone())

    async def _message(self) -> dict[str, Any]:
        length = 0
        while line := (await self._reader.readuntil(b"\n")).strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        message = json.loads(await self._reader.readexactly(length))
        if not isinstance(message, dict):
            raise ValueError("a message is an object")
        return message

    async def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self._answer(message)
        elif "id" in message:
            refusal = {"code": METHOD_NOT_FOUND, "message": "This client answers no requests."}
            self._write({"jsonrpc": "2.0", "id": message["id"], "error": refusal})
        elif not self._deaf:
            await self.notes.put((message["method"], message.get("params") or {}))

    def _answer(self, message: dict[str, Any]) -> None:
        future = self._open.get(message.get("id") or 0)
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(RpcError(message["error"]))
        else:
            future.set_result(message.get("result"))

    def _write(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        if not self._writer.is_closing():
            self._writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
