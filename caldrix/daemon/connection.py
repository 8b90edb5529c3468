"""One client: bytes → frames → requests, each served by a task of its own → frames → bytes.

A connection opens with Hello. A frame that is none ends it with one Error. Every request gets exactly one last answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator

from caldrix.daemon.handlers import Call, answer
from caldrix.daemon.outbox import Outbox
from caldrix.daemon.parsing import parse, request_id
from caldrix.daemon.pool import OpenRequest, Pool
from caldrix.daemon.record import facts_of, kind_of
from caldrix.daemon.threads import is_fault
from caldrix.protocol.errors import BadFrame, Refused
from caldrix.protocol.frames import Framer, Payload, decode
from caldrix.protocol.messages import PROTOCOL_VERSION, Error, Hello, Message, PoolStop, Request

CHUNK_BYTES = 64 * 1024
LARGE_BODY_BYTES = 64 * 1024
HELLO_TIMEOUT_S = 30.0
FLUSH_TIMEOUT_S = 2.0
MAX_OPEN_REQUESTS = 256
MAX_SENTENCE = 2000


class Connection:
    def __init__(self, pool: Pool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._pool = pool
        self._reader = reader
        self._writer = writer
        self._framer = Framer()
        self._outbox = Outbox()
        self._open: dict[int, OpenRequest] = {}
        self._hello: Hello | None = None

    async def run(self) -> None:
        """Serve the client until it hangs up or the connection is closed."""
        self._pool.connect(self)
        async with asyncio.TaskGroup() as requests:
            sending = asyncio.create_task(self._outbox.run(self._writer, lambda: self._framer.format))
            try:
                await self._converse(requests)
            except BadFrame as error:
                self._pool.log.event("bad frame", **self._who())
                self._outbox.put(Error(id=0, code="bad_frame", message=f"{error}."))
            except OSError:
                self._outbox.discard()
            finally:
                for request in tuple(self._open.values()):
                    request.cancellation.cancel()
                try:
                    await self.close()
                    await _ended(sending)
                finally:
                    self._pool.disconnect(self)
                    if self._hello:
                        self._pool.contexts.leave(self._hello.client_id)

    async def close(self) -> None:
        """Send what waits, within a bound, and hang up."""
        flushed = await self._outbox.flush(FLUSH_TIMEOUT_S)
        self._outbox.discard()
        if not flushed:
            self._writer.transport.abort()
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await self._writer.wait_closed()
        self._writer.transport.abort()

    async def _converse(self, requests: asyncio.TaskGroup) -> None:
        payloads = self._payloads()
        async with contextlib.aclosing(payloads):
            try:
                async with asyncio.timeout(HELLO_TIMEOUT_S):
                    first = await anext(payloads, None)
            except TimeoutError:
                self._refuse(0, Refused("bad_request", f"no Hello came within {HELLO_TIMEOUT_S:.0f} seconds."))
                return
            if first is None or not self._greet(first[0]):
                return
            async for payload, large in payloads:
                await self._begin(payload, requests, large=large)

    async def _payloads(self) -> AsyncGenerator[tuple[Payload, bool], None]:
        """Each message as it arrives, and whether it is large. Raises BadFrame.

        Reading pauses while too many answers wait to be read.
        """
        while data := await self._reader.read(CHUNK_BYTES):
            self._framer.feed(data)
            while (body := self._framer.next_body()) is not None:
                if len(body) > LARGE_BODY_BYTES:
                    self._pool.had_large.set()
                    yield await asyncio.to_thread(decode, body, self._framer.format), True
                else:
                    yield decode(body, self._framer.format), False
                await self._outbox.room()
        if self._framer.pending:
            raise BadFrame(f"the connection ended {self._framer.pending} bytes into a frame")

    def _greet(self, payload: Payload) -> bool:
        """Answer the first message; False when the connection ends with that."""
        identity, version = request_id(payload), payload.get("version")
        if payload.get("type") == "Hello" and isinstance(version, int) and version != PROTOCOL_VERSION:
            message = (
                f"this pool speaks protocol version {PROTOCOL_VERSION}, not {_shown(version)}; use a matching client."
            )
            supported = [PROTOCOL_VERSION]
            self._pool.log.event("hello refused", id=identity, outcome="version")
            self._outbox.put(
                Error(
                    id=identity, code="version", message=message, detail={"supported": supported}, supported=supported
                )
            )
            return False
        try:
            hello = parse(payload)
            if not isinstance(hello, Hello):
                raise Refused("bad_request", f"{hello.type} came before Hello; a connection opens with Hello.")
        except Refused as refusal:
            self._refuse(identity, refusal)
            self._pool.log.event("hello refused", id=identity, type=kind_of(payload), outcome=refusal.code)
            return False
        self._hello = hello
        self._pool.contexts.arrive(hello.client_id)
        self._outbox.put(self._pool.welcome(identity))
        return True

    async def _begin(self, payload: Payload, requests: asyncio.TaskGroup, *, large: bool) -> None:
        identity = request_id(payload)
        try:
            request = await asyncio.to_thread(parse, payload) if large else parse(payload)
            self._check_begin(request)
        except Refused as refusal:
            self._refuse(identity, refusal)
            self._pool.log.event("request", id=identity, type=kind_of(payload), **self._who(), outcome=refusal.code)
            return
        opened = OpenRequest(request.id, waits_for_stop=isinstance(request, PoolStop))
        self._open[request.id] = opened
        self._pool.open(opened)
        opened.task = requests.create_task(self._serve(request, opened))

    def _check_begin(self, request: Request) -> None:
        if request.id in self._open:
            raise Refused("bad_request", f"the id {request.id} belongs to a request that is still open.")
        if len(self._open) >= MAX_OPEN_REQUESTS:
            raise Refused("busy", f"{MAX_OPEN_REQUESTS} requests are open on this connection; wait for an answer.")
        if self._pool.stop_requested.is_set() and not isinstance(request, PoolStop):
            raise Refused("shutting_down", "the pool is stopping; start it again and repeat the request.")

    async def _serve(self, request: Request, opened: OpenRequest) -> None:
        assert self._hello is not None
        started = time.monotonic()
        call = Call(self._pool, self._hello.client_id, self._open, opened.cancellation, self._outbox.put)
        reply: Message = _error(request.id, Refused("shutting_down", "the pool stopped before this request was done."))
        try:
            reply = await answer(call, request)
        except Refused as refusal:
            reply = _error(request.id, refusal)
        except BaseException as error:
            if not is_fault(error):
                raise
            self._pool.log.failure("failure", error, id=request.id, type=request.type)
            kind = type(error).__name__
            sentence = f"the pool failed inside while serving {request.type} ({kind}); its log names the place."
            reply = _error(request.id, Refused("engine_failed", sentence))
        finally:
            del self._open[request.id]
            self._outbox.put(reply)
            self._pool.answered(opened)
            duration = int(1000 * (time.monotonic() - started))
            facts = {
                "type": request.type,
                **self._who(),
                "duration_ms": duration,
                **call.facts,
                **facts_of(request, reply),
            }
            self._pool.log.event("request", id=request.id, **facts)

    def _refuse(self, identity: int, refusal: Refused) -> None:
        self._outbox.put(_error(identity, refusal))

    def _who(self) -> dict[str, str | None]:
        return {"client": self._hello.client.name, "client_id": self._hello.client_id} if self._hello else {}


def _error(identity: int, refusal: Refused) -> Error:
    return Error(id=identity, code=refusal.code, message=_clipped(refusal.message), detail=refusal.detail)


def _clipped(sentence: str) -> str:
    """The sentence without its middle where it is very long, as when it quotes a name of a megabyte."""
    if len(sentence) <= MAX_SENTENCE:
        return sentence
    return f"{sentence[: MAX_SENTENCE // 2]} … {sentence[-MAX_SENTENCE // 2 :]}"


def _shown(version: int) -> str:
    return str(version) if abs(version) < 10**6 else "such a large number"


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
