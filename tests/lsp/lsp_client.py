"""A strict LSP client for tests: any byte of the server that is no frame, and any answer nobody asked for, fails."""

from __future__ import annotations

import asyncio
import json
from typing import Any


class LspClient:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.ids = 0
        self.answers: dict[Any, asyncio.Future[dict[str, Any]]] = {}
        self.notes: list[dict[str, Any]] = []
        self.order: list[tuple[str, Any]] = []
        self.stray: list[dict[str, Any]] = []
        self.changed = asyncio.Condition()
        self.reading = asyncio.create_task(self._read())
        self.stderr = asyncio.create_task(process.stderr.read())  # type: ignore[union-attr]

    async def _read(self) -> None:
        out = self.process.stdout
        assert out
        while head := await self._head(out):
            name, _, length = head.decode("ascii").strip().partition(": ")
            assert name == "Content-Length", head
            message = json.loads(await out.readexactly(int(length)))
            async with self.changed:
                self._sort(message)
                self.changed.notify_all()

    async def _head(self, out: asyncio.StreamReader) -> bytes:
        try:
            return await out.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as end:
            assert end.partial == b"", end.partial
            return b""

    def _sort(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self.notes.append(message)
            self.order.append((message["method"], message["params"]))
        elif message["id"] in self.answers:
            self.order.append(("answer", message["id"]))
            self.answers.pop(message["id"]).set_result(message)
        else:
            self.stray.append(message)

    def raw(self, body: bytes, header: bytes = b"Content-Length: %d\r\n\r\n") -> None:
        assert self.process.stdin
        self.process.stdin.write(header % len(body) + body)

    def send(self, message: Any) -> None:
        self.raw(json.dumps(message).encode())

    def ask(self, method: str, params: Any = None, **more: Any) -> asyncio.Future[dict[str, Any]]:
        self.ids += 1
        message = {"jsonrpc": "2.0", "id": self.ids, "method": method, **more}
        if params is not None:
            message["params"] = params
        return self.ask_raw(message)

    def ask_raw(self, message: dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.answers[message.get("id")] = future
        self.send(message)
        return future

    async def reply(self, method: str, params: Any = None) -> dict[str, Any]:
        async with asyncio.timeout(20):
            return await self.ask(method, params)

    async def call(self, method: str, params: Any = None) -> Any:
        answer = await self.reply(method, params)
        assert "result" in answer, (method, answer)
        return answer["result"]

    async def error(self, method: str, params: Any = None) -> dict[str, Any]:
        answer = await self.reply(method, params)
        assert "error" in answer, (method, answer)
        return dict(answer["error"])

    def notify(self, method: str, params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def initialize(self, **options: Any) -> dict[str, Any]:
        aerix = {"client": {"name": "tests", "version": "1"}, **options}
        params = {"processId": None, "rootUri": None, "capabilities": {}, "initializationOptions": {"aerix": aerix}}
        result = await self.call("initialize", params)
        self.notify("initialized", {})
        return dict(result)

    def events(self, session: str) -> list[dict[str, Any]]:
        return [n["params"] for n in self.notes if n["method"] == "aerix/event" and n["params"]["session"] == session]

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(condition)

    async def ended(self) -> int:
        async with asyncio.timeout(20):
            await self.reading
            return await self.process.wait()

    async def stop(self) -> int:
        await self.call("shutdown")
        self.notify("exit", None)
        return await self.ended()
