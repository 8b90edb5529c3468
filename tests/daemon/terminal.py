"""A command on a pseudo-terminal, as a person at a keyboard uses it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

BOUND_S = 15.0
CONTROLLED = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
)
"""Makes the terminal the controlling one, so that Ctrl-C is a signal, and becomes the command."""


class Terminal:
    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self.process = process
        self.shown = b""
        self._seen = 0

    def press(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def until(self, text: str) -> None:
        """Read until this stands after what was waited for before."""
        end = time.monotonic() + BOUND_S
        while (place := self.shown.find(text.encode(), self._seen)) < 0:
            assert time.monotonic() < end and self._read(), f"{text!r} did not come; shown: {self.shown!r}"
        self._seen = place + len(text.encode())

    def ended(self) -> int:
        """Read to the end; gives the exit code."""
        while self._read():
            pass
        return self.process.wait(BOUND_S)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], BOUND_S)
        assert ready, f"nothing came; shown: {self.shown!r}"
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:  # the other end was closed
            return False
        if b"\x1b[6n" in data:
            os.write(self._descriptor, b"\x1b[1;1R")  # a terminal tells where its cursor is
        self.shown += data
        return bool(data)


@contextlib.contextmanager
def on_terminal(words: list[str], env: Mapping[str, str], folder: Path, columns: int = 80) -> Iterator[Terminal]:
    """`words` are those after `python`."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-c", CONTROLLED, sys.executable, *words]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(env), cwd=folder, start_new_session=True
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)
