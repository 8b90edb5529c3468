"""`caldrix pool stop` and `caldrix pool status`: one request to a running pool."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

import psutil

from caldrix.client.client import PoolClient
from caldrix.commands.exits import EXIT_DONE, EXIT_FAILED, Stop
from caldrix.commands.table import status_lines
from caldrix.protocol.errors import CaldrixError
from caldrix.protocol.messages import payload
from caldrix.protocol.paths import default_socket
from caldrix.protocol.text import encodable

CLIENT_ID = "caldrix-control"
STOP_TIMEOUT_S = 40.0
POLL_S = 0.05


def run_control(given: argparse.Namespace) -> int:
    """Raises Stop when no pool answers, or it says no."""
    action = _stop if given.command == "pool stop" else _status
    try:
        asyncio.run(action(given.socket or default_socket(), as_json=given.json))
    except CaldrixError as error:
        raise Stop(EXIT_FAILED, str(error)) from error
    return EXIT_DONE


async def _status(path: Path, *, as_json: bool) -> None:
    async with await PoolClient.connect(path, CLIENT_ID) as client:
        status = await client.status()
    lines = [json.dumps(payload(status), indent=2)] if as_json else status_lines(status)
    sys.stdout.write("".join(f"{encodable(line)}\n" for line in lines))


async def _stop(path: Path, *, as_json: bool) -> None:
    """Ask for the end and wait for it: when this returns, another pool can take the socket."""
    async with await PoolClient.connect(path, CLIENT_ID) as client:
        pid = client.welcome.pool.pid
        await client.stop()
    await _gone(pid)
    sys.stdout.write(
        (json.dumps({"stopped": True, "pid": pid}) if as_json else f"stopped the pool (process {pid})") + "\n"
    )


async def _gone(pid: int) -> None:
    end = time.monotonic() + STOP_TIMEOUT_S
    while _runs(pid):
        if time.monotonic() > end:
            raise Stop(EXIT_FAILED, f"the pool (process {pid}) has answered but not ended after {STOP_TIMEOUT_S:.0f} s")
        await asyncio.sleep(POLL_S)


def _runs(pid: int) -> bool:
    """Whether the process still holds anything; one that its parent has not collected yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
