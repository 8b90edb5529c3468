"""Where the pool listens."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from caldrix.protocol.errors import Refused

# sun_path holds 108 bytes on Linux and 104 on the BSDs, its closing NUL included.
SOCKET_PATH_LIMIT = 107 if sys.platform == "linux" else 103


def default_socket() -> Path:
    """`$XDG_RUNTIME_DIR/caldrix/pool.sock`, else `/tmp/caldrix-<uid>/pool.sock`."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) / "caldrix" if runtime else Path(f"/tmp/caldrix-{os.getuid()}")  # noqa: S108 - the specified place
    return base / "pool.sock"


def check_socket_path(path: Path) -> Path:
    """The path, or Refused("bad_request") when it is longer than the platform's limit."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_LIMIT:
        message = f"the socket path {path} has {length} bytes; the limit is {SOCKET_PATH_LIMIT}. Choose a shorter one"
        raise Refused("bad_request", message)
    return path
