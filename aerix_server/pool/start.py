"""Finding or starting the pool, and binding the members that serve the two roles."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aerix_server.config.bounds import AUTOSTART_POLL_S
from aerix_server.config.settings import Settings
from aerix_server.pool.caldrix_pool import CaldrixPool
from aerix_server.pool.launch import LOCK_HELD, Launched, launch, pool_command
from aerix_server.pool.members import ensure_member
from aerix_server.pool.port import MemberState, Pool
from aerix_server.pool.references import absolute, wanted_model
from aerix_server.protocol.events import Notice, ProgressEvent
from aerix_server.protocol.outcomes import AerixError
from caldrix.protocol.errors import CaldrixError, Refused
from caldrix.protocol.paths import default_socket

Report = Callable[[ProgressEvent | Notice], None]


@dataclass(frozen=True)
class BoundPool:
    """A pool and the members that serve the roles; `socket` is where it listens. Close the pool when done with it."""

    pool: Pool
    main: MemberState
    decision: MemberState
    socket: str


async def bind_pool(settings: Settings, report: Report) -> BoundPool:
    """Connect, starting a pool where none answers, and load what it does not hold yet.

    Raises AerixError: pool_unavailable, model_refused.
    """
    model, note = wanted_model(settings.main.model)
    model = absolute(model, Path.cwd())
    if note is not None:
        report(Notice(level="info", text=note))
    socket = pool_socket(settings)
    pool = await _connect(settings, socket) or await _autostart(settings, socket, model, report)
    try:
        main = await ensure_member(pool, model, settings, report)
        decision = main
        if settings.decision.model is not None:
            decision = await ensure_member(pool, absolute(settings.decision.model, Path.cwd()), settings, report)
    except BaseException:
        await pool.aclose()
        raise
    return BoundPool(pool, main, decision, os.fspath(socket))


def pool_socket(settings: Settings) -> Path:
    """Where the pool listens."""
    return Path(settings.pool.socket).expanduser() if settings.pool.socket else default_socket()


async def _connect(settings: Settings, socket: Path) -> CaldrixPool | None:
    """A connected pool, or None when none answers yet. Raises AerixError for one that cannot be used."""
    try:
        return await CaldrixPool.connect(socket, settings.pool.max_connections)
    except Refused as error:
        raise AerixError("pool_unavailable", f"the pool at {socket} refused the connection: {error.message}") from error
    except CaldrixError as error:
        if isinstance(error.__cause__, PermissionError):
            message = f"the pool at {socket} cannot be reached: permission denied"
            raise AerixError("pool_unavailable", message, "it may belong to another user; set pool.socket") from error
        return None


async def _autostart(settings: Settings, socket: Path, model: str, report: Report) -> CaldrixPool:
    """Start a pool and try its socket until it answers. It binds only once the model is loaded."""
    loop, bound = asyncio.get_running_loop(), settings.pool.start_timeout_secs
    started = loop.time()
    launched = await asyncio.to_thread(launch, pool_command(settings, os.fspath(socket), model))
    while True:
        code = launched.process.poll()
        pool = await _connect(settings, socket)
        if pool is not None:
            return pool
        if code not in (None, LOCK_HELD):
            raise _did_not_start(launched, f"the pool ended with exit code {code} before it answered", model)
        waited = loop.time() - started
        if waited >= bound:
            # It goes on by itself: a long download is not thrown away, and the next request finds it further on.
            raise _did_not_start(launched, f"the pool did not answer on {socket} within {bound} s", model)
        report(ProgressEvent(phase="autostart", done=int(waited), total=bound, detail=model))
        await asyncio.sleep(AUTOSTART_POLL_S)


def _did_not_start(launched: Launched, what: str, model: str) -> AerixError:
    said = launched.tail()
    message = f"{what} (model {model})" + (f"; it said:\n{said}" if said else "")
    return AerixError("pool_unavailable", message, f"its whole output is in {launched.log}")
