"""The model of `caldrix run`: on a pool of its own in this process, or on the pool that `--socket` names."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from caldrix.client.client import PoolClient
from caldrix.daemon.flags import overlay
from caldrix.daemon.options import PoolOptions
from caldrix.daemon.server import serve
from caldrix.engine.api import Loader, ServingFlags
from caldrix.protocol.messages import Member, Progress
from caldrix.protocol.paths import SOCKET_PATH_LIMIT

MEMBER = "main"
SOCKET_NAME = "run.sock"
LONGEST_FOLDER = SOCKET_PATH_LIMIT - len("/caldrix-12345678/") - len(SOCKET_NAME)
POLL_S = 0.5

Report = Callable[[Progress], None]


@contextlib.asynccontextmanager
async def served(given: argparse.Namespace, load: Loader, report: Report) -> AsyncIterator[tuple[PoolClient, Member]]:
    """A client of the pool, and the member that serves the model. Raises CaldrixError."""
    name = f"caldrix-run-{os.getpid()}"
    if given.socket:
        async with await PoolClient.connect(given.socket, name, given.frames) as client:
            yield client, await _find_or_load(client, given, report)
        return
    flags = overlay(ServingFlags(), given)
    async with _private_pool(flags, load) as socket, await PoolClient.connect(socket, name, given.frames) as client:
        yield client, await client.load(given.reference, MEMBER, on_progress=report)


def holds(member: Member, reference: str) -> bool:
    """Whether a pool's member is of this model: by its name in the pool, its reference, or the file that it names."""
    if reference in (member.member, member.model):
        return True
    return reference.endswith(".gguf") and Path(reference).absolute() == Path(member.model).absolute()


def flag_words(given: argparse.Namespace) -> list[str]:
    """The serving flags that were given, as the words that a MemberLoad takes. Pure."""
    names = ("window", "threads", "context_budget", "memory_limit", "max_batch", "store_dir")
    values = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


async def _find_or_load(client: PoolClient, given: argparse.Namespace, report: Report) -> Member:
    """The member that holds the model already, waited for while it is being loaded, or else one loaded now."""
    while True:
        members = (await client.status()).members
        found = next((member for member in members if holds(member, given.reference)), None)
        if found is None:
            return await client.load(given.reference, None, flag_words(given) or None, report)
        if found.status != "loading":
            return found
        report(Progress(id=0, phase="load", done=0, total=0))
        await asyncio.sleep(POLL_S)


@contextlib.asynccontextmanager
async def _private_pool(flags: ServingFlags, load: Loader) -> AsyncIterator[Path]:
    """A pool in this process; gives its socket, in a folder that is removed at the end. Raises CannotStart."""
    with tempfile.TemporaryDirectory(prefix="caldrix-", dir=_short_folder()) as folder:
        socket = Path(folder) / SOCKET_NAME
        options = PoolOptions(socket, (), flags, idle_timeout_s=0.0, log=Path(folder) / "pool.log")
        stop, ready = asyncio.Event(), asyncio.Event()
        serving = asyncio.create_task(serve(options, load, stop=stop, ready=ready))
        waiting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            yield socket
        finally:
            waiting.cancel()
            stop.set()
            await asyncio.wait({serving})


def _short_folder() -> str | None:
    """Where the socket's folder goes: the usual temporary folder, unless its path is too long for a socket."""
    return None if len(tempfile.gettempdir()) <= LONGEST_FOLDER else "/tmp"  # noqa: S108 - a fresh folder is made in it
