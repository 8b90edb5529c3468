"""What a kill -9 leaves: a named outcome, a whole log, and a next request that works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from tests.e2e.conftest import BOUND_S, Home, final, turn

SLOW = {"replies": [turn(("plan", {"op": "write", "text": "long " * 400})), final("ok")], "pace_s": 0.01}


def headless(home: Home, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "aerix_cli", "-p", "go", "--route", "answer", "--output-format", "stream-json"],
        cwd=cwd,
        env=home.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(process: subprocess.Popen[str], kind: str) -> dict[str, Any]:
    """The first event of a kind on a stream-json run."""
    assert process.stdout
    for line in process.stdout:
        event: dict[str, Any] = json.loads(line)
        if event["type"] == kind:
            return event
    raise AssertionError(f"the run ended without {kind}: {process.stderr.read() if process.stderr else ''}")


def test_a_killed_pool_ends_the_request_and_the_next_one_starts_another(home: Home, repo: Path) -> None:
    home.configure(SLOW)
    process = headless(home, repo)
    until(process, "turn.delta")
    pool = home.pool_process()
    assert pool is not None
    pool.kill()
    pool.wait(20)
    out, _ = process.communicate(timeout=BOUND_S)
    result = json.loads(out.splitlines()[-1])
    assert (process.returncode, result["outcome"]) == (1, "failed") and "pool" in result["reason"]
    log = home.log(result["session"])
    assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
    assert {"agent.end", "request.end", "session.end"} <= {event["type"] for event in log}

    home.configure({"replies": [final("back")]})
    again = home.result(repo, "-p", "again", "--route", "answer")
    assert (again["outcome"], again["text"]) == ("final", "back")
    new = home.pool_process()
    assert new is not None and new.pid != pool.pid


def test_a_killed_server_leaves_a_log_that_loads(home: Home, repo: Path) -> None:
    home.configure(SLOW)
    process = headless(home, repo)
    session = until(process, "turn.delta")["session"]
    servers = [
        child for child in psutil.Process(process.pid).children(recursive=True) if "aerix_server" in child.cmdline()
    ]
    for server in servers:
        server.kill()
    _, errors = process.communicate(timeout=BOUND_S)
    assert servers and process.returncode == 1 and errors and "Traceback" not in errors
    log = home.log(session)
    assert log[0]["type"] == "session.start" and any(event["type"] == "agent.spawn" for event in log)
    home.configure({"replies": [final("fine")]})
    home.stop()
    assert home.result(repo, "-p", "again", "--route", "answer")["outcome"] == "final"


def test_an_interrupt_cancels_and_says_so(home: Home, repo: Path) -> None:
    home.configure(SLOW)
    process = headless(home, repo)
    until(process, "turn.delta")
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=BOUND_S)
    assert process.returncode == 130 and json.loads(out.splitlines()[-1])["outcome"] == "cancelled"
