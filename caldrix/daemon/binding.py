"""One pool per socket: the lock beside it decides, and only what is proven stale is removed.

The lock is a flock on `<socket>.lock`, held until the process ends; the file itself stays, since removing it would let
two pools hold two locks of one name. A socket file proves nothing: under the lock, a refused connection shows that
nobody listens. Anything else at the path, and a listener that answers slowly, is left alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from caldrix.daemon.options import EXIT_LOCK_HELD, CannotStart
from caldrix.protocol.errors import Refused
from caldrix.protocol.paths import check_socket_path

BACKLOG = 128
PROBE_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Listener:
    """A bound socket and the identity of its file, so that only our own file is ever removed."""

    socket: socket.socket
    path: Path
    identity: tuple[int, int]

    def remove(self) -> None:
        """Take the socket file away, if it is still ours. The open socket is the caller's to close."""
        with contextlib.suppress(FileNotFoundError):
            if _identity(self.path) == self.identity:
                self.path.unlink()


def lock(path: Path) -> int:
    """Take the lock of the socket at `path` and give its descriptor; the folder is made (0700) when it is missing.

    Raises CannotStart: with EXIT_LOCK_HELD when another pool holds it, else with what is in the way.
    """
    try:
        check_socket_path(path)
        _prepare_folder(path.parent)
        descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except Refused as refusal:
        raise CannotStart(refusal.message) from refusal
    except OSError as error:
        raise CannotStart(f"cannot make the lock file {path}.lock: {error.strerror}.") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise CannotStart(f"another pool holds {path}.lock.", EXIT_LOCK_HELD) from error
        raise CannotStart(f"cannot lock {path}.lock: {error.strerror}.") from error
    return descriptor


def check_free(path: Path) -> bool:
    """Whether a stale socket lies at `path` (False: nothing does). Call it under the lock.

    Raises CannotStart when something is there that is no socket, or that somebody may still serve.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise CannotStart(f"cannot look at {path}: {error.strerror}.") from error
    if not stat.S_ISSOCK(mode):
        raise CannotStart(f"{path} is not a socket and is left alone; remove it or choose another path with --socket.")
    if not _refuses(path):
        raise CannotStart(f"something already listens on {path}.", EXIT_LOCK_HELD)
    return True


def bind(path: Path) -> Listener:
    """Listen at `path` with mode 0600, in place of a socket that `check_free` proves stale. Raises CannotStart."""
    if check_free(path):
        path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Nobody can connect before it listens. The umask is the whole process's: other threads make files meanwhile.
        server.bind(os.fsencode(path))
        path.chmod(0o600)
        server.listen(BACKLOG)
        server.setblocking(False)
        return Listener(server, path, _identity(path))
    except OSError as error:
        server.close()
        raise CannotStart(f"cannot listen on {path}: {error.strerror}.") from error


def _prepare_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = folder.stat().st_uid
    if owner not in (0, os.getuid()):
        raise CannotStart(
            f"the folder {folder} belongs to user {owner}, who could replace the socket; choose another with --socket."
        )


def _refuses(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_TIMEOUT_S)
        try:
            probe.connect(os.fsencode(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino
