"""`caldrix pool`: run a pool in this process."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

import platformdirs

from caldrix.commands.exits import EXIT_USAGE, Stop, say
from caldrix.daemon.flags import overlay
from caldrix.daemon.memory import share_arenas
from caldrix.daemon.names import split_load
from caldrix.daemon.options import CannotStart, LoadSpec, PoolOptions
from caldrix.daemon.server import serve
from caldrix.engine.api import Loader, ServingFlags
from caldrix.protocol.errors import Refused
from caldrix.protocol.paths import check_socket_path, default_socket


def pool_options(given: argparse.Namespace) -> PoolOptions:
    """The options that the words ask for. Raises Stop for a name that stands twice, and a path that is too long."""
    loads = tuple(LoadSpec(*split_load(text)) for text in given.load)
    names = [spec.member for spec in loads if spec.member]
    if len(set(names)) != len(names):
        raise Stop(EXIT_USAGE, f"two --load have one name: {', '.join(names)}")
    try:
        socket = check_socket_path(given.socket or default_socket())
    except Refused as refusal:
        raise Stop(EXIT_USAGE, refusal.message) from refusal
    return PoolOptions(
        socket=socket,
        loads=loads,
        flags=overlay(ServingFlags(), given),
        idle_timeout_s=given.idle_timeout,
        log=given.log or (None if given.foreground else default_log()),
        log_text=given.log_text,
    )


def default_log() -> Path:
    """`$XDG_STATE_HOME/caldrix/pool.log`."""
    return platformdirs.user_state_path("caldrix", appauthor=False) / "pool.log"


def run_pool(given: argparse.Namespace, load: Loader) -> int:
    """Serve until stopped; gives the exit code. Raises Stop."""
    options = pool_options(given)
    share_arenas()
    try:
        return asyncio.run(_serve(options, load, foreground=given.foreground))
    except CannotStart as error:
        raise Stop(error.exit_code, str(error)) from error


async def _serve(options: PoolOptions, load: Loader, *, foreground: bool) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if foreground:
        loop.add_signal_handler(signal.SIGHUP, stop.set)
    else:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it serves every process of its user, not one terminal
    return await serve(options, load, stop=stop, announce=say)
