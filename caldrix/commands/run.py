"""`caldrix run`: one answer, or a chat, from a model loaded for it alone.

The model is served by the same daemon code as any pool, on a private socket in a folder that is removed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from caldrix.client.client import PoolClient
from caldrix.commands.answer import Chat, Question
from caldrix.commands.exits import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, Stop, say
from caldrix.daemon.flags import overlay
from caldrix.daemon.options import LoadSpec, PoolOptions
from caldrix.daemon.server import serve
from caldrix.daemon.threads import in_daemon_thread
from caldrix.engine.api import Loader, ServingFlags
from caldrix.protocol.errors import CaldrixError
from caldrix.protocol.messages import Json
from caldrix.protocol.paths import SOCKET_PATH_LIMIT

MEMBER = "main"
SOCKET_NAME = "run.sock"
LONGEST_FOLDER = SOCKET_PATH_LIMIT - len("/caldrix-12345678/") - len(SOCKET_NAME)


def run(given: argparse.Namespace, load: Loader) -> int:
    """Gives the exit code. Raises Stop; KeyboardInterrupt when interrupted."""
    question = Question(given.max_new_tokens, _constraint(given.json_schema), stats=given.stats)
    prompt = _prompt(given.prompt)
    if prompt is not None and not prompt.strip():
        raise Stop(EXIT_USAGE, "the prompt is empty")
    try:
        asyncio.run(_run(given, load, question, prompt))
    except CaldrixError as error:
        raise Stop(EXIT_FAILED, str(error)) from error
    return EXIT_DONE


def _prompt(given: str | None) -> str | None:
    """The prompt; None stands for a chat. Only a prompt that is missing, or `-`, is read from stdin."""
    if given == "-" or (given is None and not sys.stdin.isatty()):
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    return given


def _constraint(path: Path | None) -> Json | None:
    if path is None:
        return None
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Stop(EXIT_USAGE, f"--json-schema {path}: {error}") from error
    if not isinstance(schema, dict | bool):
        raise Stop(EXIT_USAGE, f"--json-schema {path}: a schema is an object or a boolean")
    return Json(kind="Json", schema_=schema)


async def _run(given: argparse.Namespace, load: Loader, question: Question, prompt: str | None) -> None:
    loads = (LoadSpec(given.reference, MEMBER),)
    flags = overlay(ServingFlags(), given)
    async with (
        _served(loads, flags, load) as socket,
        await PoolClient.connect(socket, "caldrix-run", given.frames) as client,
    ):
        chat = Chat(client, MEMBER, question)
        if prompt is not None:
            await chat.ask(prompt)
            return
        while line := await in_daemon_thread(_read_line, "caldrix-input"):
            if line.strip():
                await chat.ask(line.strip())


@contextlib.asynccontextmanager
async def _served(loads: tuple[LoadSpec, ...], flags: ServingFlags, load: Loader) -> AsyncIterator[Path]:
    """A pool in this process; gives its socket. Raises CannotStart."""
    announce = say if sys.stderr.isatty() else (lambda line: None)
    with tempfile.TemporaryDirectory(prefix="caldrix-", dir=_short_folder()) as folder:
        socket = Path(folder) / SOCKET_NAME
        options = PoolOptions(socket, loads, flags, idle_timeout_s=0.0, log=Path(folder) / "pool.log")
        stop, ready = asyncio.Event(), asyncio.Event()
        serving = asyncio.create_task(serve(options, load, stop=stop, ready=ready, announce=announce))
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


def _read_line() -> str:
    """The next line of the terminal; empty when it was closed. Not by sys.stdin, whose lock an exit would wait for."""
    sys.stderr.write("> ")
    sys.stderr.flush()
    return os.read(sys.stdin.fileno(), 1 << 16).decode("utf-8", "replace")
