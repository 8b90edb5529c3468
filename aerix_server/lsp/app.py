"""Builds the server for one client, hands each room its parts, and runs it on two file descriptors."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, get_args

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from aerix_server import __version__
from aerix_server.lsp import diff, documents, errors, plans, pool, requests, sessions
from aerix_server.lsp.buffers import Buffers
from aerix_server.lsp.client import Client, options_of
from aerix_server.lsp.frames import Splitter
from aerix_server.lsp.method import read_params
from aerix_server.lsp.pipes import FrameWriter, read_chunks
from aerix_server.lsp.ports import SessionsPort
from aerix_server.lsp.protocol import Protocol, converter
from aerix_server.lsp.publish import Feeds
from aerix_server.protocol.events import Event
from aerix_server.protocol.messages import AerixOptions
from aerix_server.protocol.methods import METHODS, PROTOCOL_VERSION
from aerix_server.protocol.outcomes import BadParams

logger = logging.getLogger(__name__)

CLOSE_S: Final = 22.0
"""How long the sessions may take to end their requests and their logs: a little more than they take at most."""
LAST_WORDS_S: Final = 2.0
"""How long a client may take to read what was sent before the end."""

MakeSessions = Callable[[dict[str, Any], Callable[[Path], str | None]], SessionsPort]
"""Given the client's settings and the look-up of unsaved text."""


class AerixServer(LanguageServer):
    """The server of one client. Its end is a future: the exit code, and the reason that session.end records."""

    def __init__(self, make_sessions: MakeSessions, tasks: asyncio.TaskGroup) -> None:
        super().__init__(
            "aerix-server",
            __version__,
            # Whole texts: pygls counts lines by str.splitlines, so ranges would miss in a file with a form feed.
            types.TextDocumentSyncKind.Full,
            protocol_cls=Protocol,
            converter_factory=converter,
        )
        self._make_sessions = make_sessions
        self._tasks = tasks
        self._client: Client | None = None
        self.buffers = Buffers()
        self.ended: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        wire = self.wire
        wire.experimental = {"aerix": announcement()}
        wire.on_exit = lambda code: self.end(code, "exit" if code == 0 else "exit without shutdown")
        self._register()

    @property
    def wire(self) -> Protocol:
        assert isinstance(self.protocol, Protocol)
        return self.protocol

    def client(self) -> Client:
        assert self._client is not None, "handlers run after initialize"
        return self._client

    def end(self, code: int, reason: str) -> None:
        """The first end counts."""
        if not self.ended.done():
            self.ended.set_result((code, reason))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._tasks.create_task(work)

    async def close(self, reason: str) -> None:
        """End the sessions and send what they still said. Bounded; may be called again."""
        if self._client is None:
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._client.sessions.close(reason)
            async with asyncio.timeout(LAST_WORDS_S):
                await self._client.feeds.all_drained()
        except TimeoutError:
            logger.warning("the sessions did not end within %s s", CLOSE_S)

    def detach(self) -> None:
        """Nothing more is sent."""
        if self._client is not None:
            self._client.feeds.close()

    def report_server_error(self, error: Exception, source: Any) -> None:
        """To the log: pygls would pop it up in the editor."""
        logger.error("%s", error, exc_info=error)

    def _register(self) -> None:
        for room in (sessions, requests, plans, diff, pool):
            room.register(self, self.client)
        documents.register(self, self.buffers, self.spawn)

        @self.feature(types.INITIALIZE)
        def initialize(params: types.InitializeParams) -> None:
            options = read_params(AerixOptions, options_of(params.initialization_options))
            self._client = self._accept(options)

        @self.feature(types.SHUTDOWN)
        async def shutdown(_params: None) -> None:
            await self.close("shutdown")

    def _accept(self, options: AerixOptions) -> Client:
        try:
            made = self._make_sessions(options.settings, self.buffers.text)
        except BadParams as error:
            raise errors.from_named(error) from error

        async def read_log(session: str, after_seq: int) -> list[dict[str, Any]]:
            return await made.events(session, after_seq)

        return Client(options, made, Feeds(_Send(self.wire), read_log, self.spawn))


class _Send:
    """The way from a feed to the client's pipe."""

    def __init__(self, wire: Protocol) -> None:
        self._wire = wire

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._wire.notify(method, params)

    async def room(self) -> None:
        if isinstance(self._wire.writer, FrameWriter):
            await self._wire.writer.room()


def announcement() -> dict[str, Any]:
    """`capabilities.experimental.aerix`: what this server speaks."""
    events = [kind.model_fields["type"].default for kind in get_args(Event)]
    return {"version": __version__, "protocol": PROTOCOL_VERSION, "methods": list(METHODS), "events": events}


async def serve(make_sessions: MakeSessions, read_fd: int, write_fd: int) -> int:
    """Serve one client until it leaves or a signal ends the process. Gives the exit code."""
    async with asyncio.TaskGroup() as tasks:
        server = AerixServer(make_sessions, tasks)
        writer = FrameWriter(write_fd, lambda: server.end(1, "the client no longer reads"))
        server.wire.set_writer(writer)
        reading = tasks.create_task(_read(server, read_fd))
        _watch_signals(server)
        code, reason = await server.ended
        logger.info("ending with code %d: %s", code, reason)
        reading.cancel()
        await server.close(reason)
        server.detach()
        server.wire.cancel_open()
        await writer.finish(LAST_WORDS_S)
    return code


def _watch_signals(server: AerixServer) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, server.end, 1, f"ended by {number.name}")


async def _read(server: AerixServer, fd: int) -> None:
    splitter = Splitter()
    async for chunk in read_chunks(fd):
        for body in splitter.feed(chunk):
            server.wire.receive(body)
    server.end(1, "the client went away")
