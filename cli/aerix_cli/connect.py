"""Starts the server as a child and speaks to it: typed requests, events in order, an orderly end."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from aerix_cli.rpc import Rpc, RpcError, ServerGone
from aerix_server import __version__
from aerix_server.protocol import messages as m
from aerix_server.protocol.folders import server_log
from aerix_server.protocol.methods import METHODS

# -P: a folder's own json.py or aerix_server must not be imported because the command runs there.
COMMAND: Final = (sys.executable, "-P", "-m", "aerix_server", "--standalone")
START_S: Final = 60.0
"""From the start of the process to the answer to `initialize`."""
LEAVE_S: Final = 25.0
"""How long the server may take to end its sessions and itself."""
KILL_S: Final = 2.0
LAST_LINES: Final = 5

Result = TypeVar("Result", bound=m.Wire)


class Server:
    """A connected server. Its notifications are in `rpc.notes`."""

    def __init__(self, process: asyncio.subprocess.Process, rpc: Rpc) -> None:
        self.rpc = rpc
        self._process = process
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)

    async def call(self, method: str, params: m.Wire, result: type[Result]) -> Result:
        """Ask a method of the table. Raises RpcError and ServerGone."""
        assert METHODS[method].result is result, method
        return result.model_validate(await self.rpc.call(method, params.model_dump(by_alias=True, exclude_none=True)))

    async def initialize(self) -> None:
        options = m.AerixOptions(client=m.ClientInfo(name="aerix", version=__version__))
        given = {"aerix": options.model_dump(by_alias=True, exclude_none=True)}
        params = {"processId": os.getpid(), "rootUri": None, "capabilities": {}, "initializationOptions": given}
        try:
            async with asyncio.timeout(START_S):
                await self.rpc.call("initialize", params)
        except TimeoutError as error:
            raise ServerGone from error
        self.rpc.notify("initialized")

    async def keep_stderr(self) -> None:
        """Its last lines tell why it ended; all else is in its log."""
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(4096):
            for line in data.decode("utf-8", "replace").splitlines():
                self._last_lines.append(line)

    async def leave(self) -> None:
        """shutdown, exit; then by force."""
        self.rpc.stop_listening()
        with suppress(RpcError, ServerGone, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self.rpc.call("shutdown", {})
                self.rpc.notify("exit")
                await self._process.wait()
        for end, patience in ((self._process.terminate, LEAVE_S), (self._process.kill, KILL_S)):
            if self._process.returncode is None:
                end()
                with suppress(TimeoutError):
                    async with asyncio.timeout(patience):
                        await self._process.wait()

    async def why_it_ended(self) -> str:
        """A sentence, once the process is gone."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_S):
                await self._process.wait()
        status = self._process.returncode
        how = "does not answer" if status is None else f"ended with status {status}"
        said = f" It said: {' / '.join(self._last_lines)}" if self._last_lines else ""
        return f"The server {how} before the request was done; {server_log(os.environ)} has the details.{said}"


@asynccontextmanager
async def connect() -> AsyncIterator[Server]:
    """A server of our own, initialized. Leaves it in order. Raises RpcError, and ServerGone with a sentence."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for us: we cancel the request and end the server in order
    )
    assert process.stdin is not None
    assert process.stdout is not None
    server = Server(process, Rpc(process.stdout, process.stdin))
    helpers = [asyncio.create_task(server.rpc.run()), asyncio.create_task(server.keep_stderr())]
    try:
        await server.initialize()
        yield server
    except ServerGone as error:
        raise ServerGone(await server.why_it_ended()) from error
    finally:
        await server.leave()
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
