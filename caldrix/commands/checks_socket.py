"""Is the pool's socket sound, and who answers at it?"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import psutil

from caldrix import __version__
from caldrix.client.client import PoolClient
from caldrix.commands.checks import Check, fail, ok, warn
from caldrix.protocol.errors import CaldrixError, Refused
from caldrix.protocol.messages import PROTOCOL_VERSION, PoolStatus
from caldrix.protocol.paths import SOCKET_PATH_LIMIT

CLIENT_ID: Final = "caldrix-doctor"
ANSWER_TIMEOUT_S: Final = 5.0
STARTING: Final = "loading a model, or stopping"

At = Literal["nothing", "socket", "other"]


@dataclass(frozen=True)
class Found:
    """`status` is the answer of the pool at the socket, None where none answered."""

    checks: list[Check]
    status: PoolStatus | None


async def check_socket(path: Path) -> Found:
    """Every check of the socket at `path`; nothing is changed there."""
    length = path_check(path)
    if length.status == "fail":
        return Found([length], None)
    checks = [length, folder_check(path.parent)]
    at, file = file_check(path)
    checks.append(file)
    if at == "other":
        return Found(checks, None)
    status, pool = await _pool_check(path) if at == "socket" else (None, absent_check(path))
    return Found([*checks, pool], status)


def path_check(path: Path) -> Check:
    length = len(os.fsencode(path))
    facts = {"path": str(path), "bytes": length, "limit": SOCKET_PATH_LIMIT}
    found = f"{path}: {length} bytes of at most {SOCKET_PATH_LIMIT}"
    if length > SOCKET_PATH_LIMIT:
        return fail("socket path", found, "choose a shorter path with --socket, or a shorter XDG_RUNTIME_DIR", **facts)
    return ok("socket path", found, **facts)


def folder_check(folder: Path) -> Check:
    """Who owns the folder could replace the socket, and so could whoever may write into it."""
    try:
        status = folder.stat()
    except FileNotFoundError:
        return ok("socket folder", f"{folder} is made, with mode 0700, when a pool starts")
    except OSError as error:
        return fail("socket folder", f"{folder} cannot be looked at: {error.strerror}", "choose another with --socket")
    mode, owner = stat.S_IMODE(status.st_mode), status.st_uid
    found, facts = f"{folder}: user {owner}, mode {mode:04o}", {"owner": owner, "mode": f"{mode:04o}"}
    if not stat.S_ISDIR(status.st_mode):
        return fail("socket folder", f"{folder} is not a folder", f"rm {folder}", **facts)
    if owner not in (0, os.getuid()):
        fix = "choose a folder of your own with --socket"
        return fail("socket folder", f"{found}: another user could replace the socket", fix, **facts)
    if owner != os.getuid():
        fix = f"give it to yourself: chown {os.getuid()} {folder}; or choose a folder of your own with --socket"
        return warn("socket folder", f"{found}: it is not yours alone", fix, **facts)
    if mode & 0o077:
        return warn("socket folder", f"{found}: other users can look into it", f"chmod 700 {folder}", **facts)
    return ok("socket folder", found, **facts)


def file_check(path: Path) -> tuple[At, Check]:
    """What lies at the path."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return "nothing", ok("socket", "no socket lies there")
    except OSError as error:
        fix = "choose another path with --socket"
        return "other", fail("socket", f"{path} cannot be looked at: {error.strerror}", fix)
    mode, owner = stat.S_IMODE(status.st_mode), status.st_uid
    facts = {"owner": owner, "mode": f"{mode:04o}"}
    if not stat.S_ISSOCK(status.st_mode):
        fix = f"move it away (mv {path} {path}.old), or choose another path with --socket"
        return "other", fail("socket", f"{path} is not a socket, and a pool leaves it alone", fix, **facts)
    if owner != os.getuid():
        fix = "choose a path of your own with --socket"
        return "other", fail("socket", f"{path} belongs to user {owner}", fix, **facts)
    if mode & 0o077:
        return "socket", warn(
            "socket", f"mode {mode:04o}: other users may connect (they are refused)", f"chmod 600 {path}", **facts
        )
    return "socket", ok("socket", f"mode {mode:04o}", **facts)


async def _pool_check(path: Path) -> tuple[PoolStatus | None, Check]:
    """Say Hello at the socket, and ask for the status."""
    started = time.monotonic()
    try:
        async with await PoolClient.connect(path, CLIENT_ID, timeout=ANSWER_TIMEOUT_S) as client:
            answered_ms = int(1000 * (time.monotonic() - started))
            return (status := await client.status()), _answer_check(status, answered_ms)
    except Refused as refusal:
        if refusal.code == "version":
            fix = f"stop the old pool (caldrix pool stop --socket {path}), by its own version of caldrix if need be"
            return None, fail("pool", f"a pool of another protocol version: {refusal.message}", fix)
        return None, fail("pool", f"a pool answers and refuses: {refusal.message}", "read its log, or stop it")
    except (CaldrixError, OSError) as error:
        return None, _silent_check(path, error)


def _answer_check(status: PoolStatus, answered_ms: int) -> Check:
    pool = status.pool
    found = (
        f"caldrix {pool.version}, process {pool.pid}, since {pool.started_at}; protocol {PROTOCOL_VERSION}; "
        f"answered in {answered_ms} ms; members: {len(status.members)}, other clients: {status.connections - 1}"
    )
    facts = {"version": pool.version, "pid": pool.pid, "answered_ms": answered_ms}
    if pool.version != __version__:
        fix = "caldrix pool stop, and it is started anew when it is needed"
        return warn("pool", f"{found}; this command is {__version__}", fix, **facts)
    return ok("pool", found, **facts)


def _silent_check(path: Path, error: Exception) -> Check:
    """A socket without an answer: stale, or of a pool that starts, stops or hangs."""
    held = lock_held(path)
    if isinstance(error.__cause__, ConnectionRefusedError) or isinstance(error, ConnectionRefusedError):
        if held:
            return _held_check(path, "nobody listens at the socket, and")
        fix = "nothing has to be done: the next pool replaces it; or remove it: rm " + str(path)
        return warn("pool", "the socket is stale: its pool ended without removing it", fix, lock_held=False)
    fix = f"end it ({_how_to_end(path)}), then start a pool again"
    return fail("pool", f"something listens and does not answer as a pool does: {error}", fix, lock_held=held)


def absent_check(path: Path) -> Check:
    """No socket: no pool, or one that has not bound yet."""
    if lock_held(path):
        return _held_check(path, "no socket, and")
    return ok("pool", "none runs; aerix starts one when it needs it, as `caldrix pool` does", lock_held=False)


def _held_check(path: Path, why: str) -> Check:
    lock = f"{path}.lock"
    fix = f"wait for it; if it stays so, read its log and end it ({_how_to_end(path)})"
    return warn("pool", f"{why} a pool holds {lock}: it is {STARTING}", fix, lock_held=True)


def lock_held(path: Path) -> bool:
    """Whether a pool holds the lock of this socket. A shared lock is tried, and given back at once."""
    try:
        descriptor = os.open(f"{path}.lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _how_to_end(path: Path) -> str:
    """The command that ends whoever has the socket's lock open."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if any(file.path == f"{path.absolute()}.lock" for file in process.open_files()):
                return f"kill {process.pid}"
    return f"`fuser {path}.lock` names its process"
