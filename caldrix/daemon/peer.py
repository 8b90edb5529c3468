"""Who is at the other end of a Unix socket."""

from __future__ import annotations

import os
import socket
import struct
import sys

_LINUX_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_XUCRED = struct.Struct("Ii")  # version, uid, then groups
_LOCAL_PEERCRED = 1


def peer_uid(connection: socket.socket) -> int | None:
    """The user id of the connected process; None where the platform does not tell (the socket's mode guards)."""
    if sys.platform == "linux":
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _LINUX_CREDENTIALS.size)
        return int(_LINUX_CREDENTIALS.unpack(data)[1])
    if sys.platform == "darwin":
        data = connection.getsockopt(0, _LOCAL_PEERCRED, 76)
        return int(_XUCRED.unpack_from(data)[1])
    return None


def is_ours(uid: int | None) -> bool:
    """Whether a peer of this user id may speak to the pool."""
    return uid is None or uid == os.getuid()
