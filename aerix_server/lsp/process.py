"""One process that serves one client on its stdin and stdout: file descriptors, log, exit."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import NoReturn

from aerix_server.lsp import logs
from aerix_server.lsp.app import MakeSessions, serve
from aerix_server.protocol.folders import server_log

logger = logging.getLogger(__name__)


def run(make_sessions: MakeSessions) -> NoReturn:
    """Serve until the client leaves or a signal comes, and leave: 0 after `shutdown` and `exit`, else 1."""
    read_fd, write_fd = take_protocol_pipes()
    stop_logging = logs.start(server_log(os.environ))
    code = _serve(make_sessions, read_fd, write_fd)
    stop_logging()
    # Not sys.exit: that waits for threads, and one may hang in a system call. All that had to be written is.
    os._exit(code)


def _serve(make_sessions: MakeSessions, read_fd: int, write_fd: int) -> int:
    """A fault of ours is one line on stderr; its traceback is for the log."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(serve(make_sessions, read_fd, write_fd))
    except Exception:
        logger.exception("the server failed; its log has the details")
        return 1


def take_protocol_pipes() -> tuple[int, int]:
    """File descriptors of the client, closed in children. What anything prints goes to stderr, and a child that
    reads its stdin gets the end of file: neither can break a frame."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    read_fd, write_fd = os.dup(0), os.dup(1)  # not inheritable
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return read_fd, write_fd
