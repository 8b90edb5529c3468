"""Finding and ending everything that a command started.

A command has its own session, so its processes share a group; one that left the group (setsid, a daemon) is still
found by a mark in its environment, which children inherit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil

from aerix_server.config.bounds import KILL_GRACE_S

MARK = "AERIX_COMMAND"
_AFTER_KILL_S = 1.0


@dataclass(frozen=True)
class Family:
    """The processes of one command: the group its shell leads, its mark, and when that shell began (psutil's clock)."""

    group: int
    mark: str
    began: float

    def alive(self) -> list[psutil.Process]:
        """Those that still run; zombies do not."""
        found: list[psutil.Process] = []
        for pid in psutil.pids():
            with contextlib.suppress(psutil.Error, OSError):
                process = psutil.Process(pid)
                if process.create_time() >= self.began and self._has(process) and _runs(process):
                    found.append(process)
        return found

    def _has(self, process: psutil.Process) -> bool:
        if os.getpgid(process.pid) == self.group:
            return True
        return bool(process.environ().get(MARK) == self.mark)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def end_family(family: Family, meanwhile: Callable[[], None]) -> list[str]:
    """TERM, then KILL after KILL_GRACE_S for what still runs; gives what could not be ended, as `pid N (name)`.

    `meanwhile` is called while it waits: it must take its own short time.
    """
    send(family, signal.SIGTERM)
    _wait(family.alive(), KILL_GRACE_S, meanwhile)
    if family.alive():
        send(family, signal.SIGKILL)
        _wait(family.alive(), _AFTER_KILL_S, meanwhile)
    return [_describe(process) for process in family.alive()]


def send(family: Family, number: signal.Signals) -> None:
    """Signal the group at once, so that nobody is born between two signals, then those outside it."""
    members = family.alive()
    if any(_in_group(process, family.group) for process in members):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(family.group, number)
    for process in members:
        if not _in_group(process, family.group):
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)


def _in_group(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group
    except OSError:
        return False


def _wait(processes: Iterable[psutil.Process], seconds: float, meanwhile: Callable[[], None]) -> None:
    left = list(processes)
    deadline = time.monotonic() + seconds
    while left and time.monotonic() < deadline:
        meanwhile()
        left = [process for process in left if _runs(process)]


def _describe(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"pid {process.pid} ({process.name()})"
    return f"pid {process.pid}"
