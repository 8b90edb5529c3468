"""One shell command: started in its own session, watched by one thread of its own until nothing of it is left.

The thread reads, so a flood never fills a pipe and never holds up the event loop; its result is given as soon as the
shell has ended, while what the shell left running is watched further.
"""

from __future__ import annotations

import errno
import os
import secrets
import selectors
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from aerix_server.config.bounds import CANCEL_POLL_S, COMMAND_DRAIN_S
from aerix_server.tools.base import ToolError
from aerix_server.tools.capture import Capture, Printed, join
from aerix_server.tools.processes import MARK, Family, end_family

How = Literal["exit", "signal", "timeout", "cancelled"]

_TICK_S = 0.05


@dataclass(frozen=True)
class Ended:
    """`code` is the exit status, the signal's number, or the seconds of the timeout. `left_running`: processes the
    shell started still run. `unended`: those that could not be ended."""

    how: How
    code: int
    printed: Printed
    left_running: bool = False
    unended: tuple[str, ...] = ()

    def status(self) -> str:
        """`[exit 0]`, `[signal 9]`, `[timeout after 120s]` or `[cancelled]`."""
        match self.how:
            case "exit" | "signal":
                return f"[{self.how} {self.code}]"
            case "timeout":
                return f"[timeout after {self.code}s]"
            case "cancelled":
                return "[cancelled]"


class Command:
    """A running command. `report` is called once, on the command's thread, with how it ended."""

    def __init__(
        self,
        text: str,
        cwd: Path,
        timeout_s: int,
        spool_dir: Path,
        report: Callable[[Ended], None],
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._timeout_s = timeout_s
        self._report = report
        self._cancelled = cancelled
        self._asked = threading.Event()
        self._gone = threading.Event()
        self._unended: list[str] = []
        self._out, self._err = Capture(spool_dir), Capture(spool_dir)
        mark = secrets.token_hex(8)
        self._process = _start(text, cwd, mark)
        # Not waited for yet, so it is there to be asked, dead or alive.
        self._family = Family(self._process.pid, mark, psutil.Process(self._process.pid).create_time())
        self._listening = True
        self._selector = selectors.DefaultSelector()
        for pipe, capture in ((self._process.stdout, self._out), (self._process.stderr, self._err)):
            assert pipe is not None
            self._selector.register(pipe, selectors.EVENT_READ, capture)
        self._thread = threading.Thread(target=self._watch, name=f"command-{self._process.pid}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ask for its end: TERM, then KILL. Returns at once."""
        self._asked.set()

    def gone(self) -> bool:
        """True when nothing of it runs any more, or what runs cannot be ended."""
        return self._gone.is_set()

    def unended(self) -> list[str]:
        return list(self._unended)

    def _watch(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        try:
            how = self._until_end(deadline)
            self._report(self._ended(how))
            self._until_gone(how)
        finally:
            self._selector.close()
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
            self._gone.set()

    def _until_end(self, deadline: float) -> How:
        while self._process.poll() is None:
            if self._asked.is_set() or self._cancelled():
                return "cancelled"
            if time.monotonic() >= deadline:
                return "timeout"
            self._pump(min(_TICK_S, CANCEL_POLL_S))
        return "exit" if self._process.returncode >= 0 else "signal"

    def _ended(self, how: How) -> Ended:
        """The result. A timeout ends the family first; a cancelled command is reported at once and ended after."""
        if how == "timeout":
            self._kill()
        elif how == "cancelled":
            self._pump(0)
        else:
            self._drain()
        left = how in ("exit", "signal") and bool(self._family.alive())
        printed = join(self._out, self._err)
        code = {"timeout": self._timeout_s, "cancelled": 0}.get(how, abs(self._process.returncode or 0))
        # What is read from here on belongs to no result.
        self._listening = False
        return Ended(how, code, printed, left, tuple(self._unended))

    def _until_gone(self, how: How) -> None:
        """Go on reading what the shell left running, which would die of a closed pipe, until it ends or must end."""
        if how == "cancelled":
            self._kill()
        while how in ("exit", "signal") and self._family.alive():
            if self._asked.is_set():
                self._kill()
                return
            until = time.monotonic() + 1.0
            while time.monotonic() < until and not self._asked.is_set():
                self._pump(_TICK_S)

    def _kill(self) -> None:
        self._unended = end_family(self._family, self._meanwhile)
        self._process.poll()

    def _meanwhile(self) -> None:
        self._pump(_TICK_S)
        self._process.poll()

    def _drain(self) -> None:
        """Read what is left in the pipes; a child that keeps them open is not waited for."""
        deadline = time.monotonic() + COMMAND_DRAIN_S
        while self._selector.get_map() and time.monotonic() < deadline:
            if not self._pump(2 * _TICK_S):
                return

    def _pump(self, seconds: float) -> bool:
        """Read what there is, waiting at most `seconds` for it; False when nothing came."""
        if not self._selector.get_map():
            time.sleep(seconds)
            return False
        ready = self._selector.select(seconds)
        for key, _ in ready:
            data = os.read(key.fd, 65536)
            if not data:
                self._selector.unregister(key.fileobj)
            elif self._listening:
                key.data.feed(data)
        return bool(ready)


def _start(text: str, cwd: Path, mark: str) -> subprocess.Popen[bytes]:
    """Raises ToolError, each cause in its own words."""
    if not text.strip():
        raise ToolError("command is empty")
    if "\0" in text:
        raise ToolError("command holds a NUL character, which no command can")
    if not cwd.is_dir():
        raise ToolError(f"the working directory {cwd} does not exist any more")
    try:
        return subprocess.Popen(
            ["sh", "-c", text],
            cwd=cwd,
            env={**os.environ, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except UnicodeEncodeError:
        raise ToolError("command holds half of a surrogate pair, which no command can") from None
    except OSError as error:
        smaller = "Put the long text into a file with write, and run that." if error.errno == errno.E2BIG else ""
        raise ToolError(f"the command could not be started: {error.strerror or error}", smaller) from error
