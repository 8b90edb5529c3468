"""A pool, as a program uses it: every request a method, and a generation an asynchronous iterator.

Every method raises Refused (the pool said no), ConnectionLost, Overdue, and BadFrame for a request too large to send.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from caldrix import __version__
from caldrix.client.connection import Connection, Replies, open_connection
from caldrix.protocol.errors import CaldrixError, ConnectionLost, Refused
from caldrix.protocol.frames import Format
from caldrix.protocol.messages import (
    PROTOCOL_VERSION,
    Append,
    Cancel,
    ClientInfo,
    Constraint,
    ContextCreate,
    ContextDrop,
    ContextEdit,
    ContextFork,
    ContextInfo,
    ContextShow,
    Delta,
    Done,
    Edit,
    Generate,
    Hello,
    Member,
    MemberLoad,
    MemberLoaded,
    MemberUnload,
    Message,
    Ok,
    PoolStatus,
    PoolStatusRequest,
    PoolStop,
    Progress,
    Queued,
    Sampling,
    Segment,
    Welcome,
)

CONTROL_TIMEOUT_S = 30.0
FRAME_TIMEOUT_S = 600.0
CANCEL_TIMEOUT_S = 5.0

GenerationFrame = Queued | Progress | Delta | Done
Expected = TypeVar("Expected", bound=Message)


class PoolClient:
    """One connection. Several requests may be open at once; `connect` opens it, `aclose` or `async with` closes it."""

    def __init__(self, connection: Connection, welcome: Welcome, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self.welcome = welcome

    @classmethod
    async def connect(
        cls,
        path: Path,
        client_id: str,
        fmt: Format = "cbor",
        client: ClientInfo | None = None,
        timeout: float = CONTROL_TIMEOUT_S,
    ) -> PoolClient:
        """Connect and greet. `client_id` owns the contexts; `timeout`, in seconds, bounds each control request."""
        connection = await open_connection(path, fmt, timeout)
        identity = client or ClientInfo(name="caldrix", version=__version__)
        hello = Hello(id=connection.new_id(), version=PROTOCOL_VERSION, client=identity, client_id=client_id)
        try:
            welcome = await _ask(connection, hello, Welcome, timeout)
        except BaseException:
            await connection.aclose()
            raise
        return cls(connection, welcome, timeout)

    async def status(self) -> PoolStatus:
        return await self._control(PoolStatusRequest(id=self._new_id()), PoolStatus)

    async def load(
        self,
        model: str,
        member: str | None = None,
        flags: list[str] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        frame_timeout: float = FRAME_TIMEOUT_S,
    ) -> Member:
        """Load a model; `frame_timeout` in seconds bounds the gap between two frames, not the whole load."""
        request = MemberLoad(id=self._new_id(), model=model, member=member, flags=flags)
        with self._connection.replies(request.id) as replies:
            await self._connection.send(request, self._timeout)
            while True:
                match await replies.next(frame_timeout):
                    case MemberLoaded(member=loaded):
                        return loaded
                    case Progress() as progress if on_progress:
                        on_progress(progress)

    async def unload(self, member: str, timeout: float = FRAME_TIMEOUT_S) -> None:
        """Free a member; its running generations are cancelled first, which may take a moment."""
        await _ask(self._connection, MemberUnload(id=self._new_id(), member=member), Ok, timeout)

    async def create(self, member: str, segments: Sequence[Segment]) -> ContextInfo:
        return await self._control(
            ContextCreate(id=self._new_id(), member=member, segments=list(segments)), ContextInfo
        )

    async def edit(self, context: str, edits: Sequence[Edit], version: int | None = None) -> ContextInfo:
        request = ContextEdit(id=self._new_id(), context=context, edits=list(edits), version=version)
        return await self._control(request, ContextInfo)

    async def fork(self, context: str, until: str | None = None) -> ContextInfo:
        """A new context of the segments up to and with `until`; of all for None."""
        return await self._control(ContextFork(id=self._new_id(), context=context, until=until), ContextInfo)

    async def show(self, context: str, text: bool = False) -> ContextInfo:
        return await self._control(ContextShow(id=self._new_id(), context=context, text=text), ContextInfo)

    async def drop(self, context: str) -> None:
        await self._control(ContextDrop(id=self._new_id(), context=context), Ok)

    async def stop(self, grace_s: float | None = None) -> None:
        """Stop the pool; its open generations have `grace_s` seconds to end by themselves."""
        request = PoolStop(id=self._new_id(), grace_s=grace_s)
        await _ask(self._connection, request, Ok, self._timeout + (grace_s or 0.0))

    async def closed(self, timeout: float) -> bool:
        """Wait until the pool hangs up; False when it has not within `timeout` seconds."""
        return await self._connection.ended(timeout)

    async def generate(
        self,
        context: str,
        max_new_tokens: int,
        *,
        constraint: Constraint | None = None,
        sampling: Sampling | None = None,
        logprobs: int | None = None,
        append: Append | None = None,
        draft: Literal["auto", "off"] = "auto",
        frame_timeout: float = FRAME_TIMEOUT_S,
        cancel_timeout: float = CANCEL_TIMEOUT_S,
    ) -> AsyncGenerator[GenerationFrame, None]:
        """Frames as they come, one Done last; `frame_timeout` in seconds bounds the gap between two.

        Leaving early, by `aclose`, a cancelled task or an error, cancels the generation and waits for its end, at most
        `cancel_timeout` seconds; 0 is for who closes the connection then.
        """
        request = Generate(
            id=self._new_id(),
            context=context,
            max_new_tokens=max_new_tokens,
            constraint=constraint,
            sampling=sampling or Sampling(),
            logprobs=logprobs,
            append=append,
            draft=draft,
        )
        with self._connection.replies(request.id) as replies:
            await self._connection.send(request, self._timeout)
            open_ = True
            try:
                while open_:
                    frame = await _generation_frame(replies, frame_timeout)
                    open_ = not isinstance(frame, Done)
                    yield frame
            except (Refused, ConnectionLost):
                open_ = False
                raise
            finally:
                if open_:
                    await self._cancel(request.id, replies, cancel_timeout)

    async def aclose(self) -> None:
        await self._connection.aclose()

    async def __aenter__(self) -> PoolClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _new_id(self) -> int:
        return self._connection.new_id()

    async def _cancel(self, target: int, replies: Replies, wait_s: float) -> None:
        """Cancel an open generation and wait, within a bound, for its last answer."""
        if not wait_s:
            return  # A closed connection cancels what it asked for.
        with contextlib.suppress(CaldrixError, TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._connection.send(Cancel(id=self._new_id(), target=target), wait_s)
                while not isinstance(await replies.next(wait_s), Done):
                    pass

    async def _control(self, request: Message, expected: type[Expected]) -> Expected:
        return await _ask(self._connection, request, expected, self._timeout)


async def _ask(connection: Connection, request: Message, expected: type[Expected], timeout: float) -> Expected:
    """The one reply to a request that streams nothing."""
    with connection.replies(request.id) as replies:
        await connection.send(request, timeout)
        reply = await replies.next(timeout)
    if not isinstance(reply, expected):
        raise _unexpected(reply)
    return reply


async def _generation_frame(replies: Replies, timeout: float) -> GenerationFrame:
    frame = await replies.next(timeout)
    if not isinstance(frame, GenerationFrame):
        raise _unexpected(frame)
    return frame


def _unexpected(reply: Message) -> ConnectionLost:
    return ConnectionLost(f"the pool answered with {type(reply).__name__}, which does not belong there.")
