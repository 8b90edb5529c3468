"""What the set-up scripts share: lines for the user, commands that run under a log, locks. Standard library only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

REPORT_EVERY_S = 20
"""Seconds between two lines about a step that goes on."""
KILL_GRACE_S = 5
"""Seconds from TERM to KILL for a command that has to be ended."""
LAST_LINES = 25
"""Lines of its log that a failed command shows."""


class SetUpError(Exception):
    """What went wrong and what to do, as sentences for the user."""


def say(text: str) -> None:
    sys.stderr.write(f"run: {text}\n")
    sys.stderr.flush()


def run_step(title: str, argv: list[str], log: Path, env: Mapping[str, str]) -> None:
    """Run a command with its output appended to `log`; says how long it has taken every REPORT_EVERY_S seconds.

    Raises SetUpError with the last lines of the log when the command fails.
    """
    say(f"{title}; log: {log}")
    started = time.monotonic()
    with log.open("ab") as output:
        output.write(f"\n$ {' '.join(argv)}\n".encode())
        output.flush()
        # Not closing descriptors hands over the locks alone: should this process be killed, they stay held until the
        # command is done with the folder.
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            close_fds=False,
            start_new_session=True,
        )
    try:
        while (code := _wait(process, REPORT_EVERY_S)) is None:
            say(f"{title}, {time.monotonic() - started:.0f} s so far; log: {log}")
    except BaseException:
        _end_group(process)
        raise
    if code != 0:
        raise SetUpError(f"{title} failed (exit {code}). The last lines of {log}:\n{_tail(log)}")


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        _wait(process, KILL_GRACE_S)


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return "\n".join(f"    {line}" for line in lines[-LAST_LINES - 1 :]).rstrip()


@contextlib.contextmanager
def locked(path: Path, waiting: str) -> Iterator[None]:
    """Hold the lock file at `path`; while another process holds it, says `waiting` every REPORT_EVERY_S seconds."""
    with path.open("ab") as file:
        started = said = 0.0
        while not _try_lock(file.fileno()):
            now = time.monotonic()
            started = started or now
            if not said or now - said >= REPORT_EVERY_S:
                say(f"{waiting} ({now - started:.0f} s so far)")
                said = now
            time.sleep(0.2)
        os.set_inheritable(file.fileno(), True)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
