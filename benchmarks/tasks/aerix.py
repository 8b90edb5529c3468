"""`aerix -p` as an agent of the trial, with a pool of the trial's own that stays warm between its runs."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

from aerix_server.protocol.outcomes import EXIT_POOL, EXIT_USAGE
from benchmarks.pool.process import gone, started
from benchmarks.tasks.agent import Agent, Attempt, Conditions
from benchmarks.tasks.command import Ended, run
from benchmarks.tasks.errors import TrialFailed
from benchmarks.tasks.place import Place, emptied, environment
from benchmarks.tasks.session_log import figures, read_log, short, trace
from benchmarks.tasks.task import Task
from caldrix.client.client import PoolClient
from caldrix.protocol.errors import CaldrixError

CALDRIX: Final = (sys.executable, "-m", "caldrix")
SEED_STEP: Final = 1000
"""Between the seeds of two runs: each turn of a run adds one to its own."""


@contextlib.asynccontextmanager
async def aerix(place: Place, conditions: Conditions, caldrix: Sequence[str] = CALDRIX) -> AsyncIterator[Agent]:
    """The agent, with a pool that ends on leaving. Raises NotMeasured when the pool does not start."""
    folder = place.root / "pool"
    async with _pool(folder, conditions, caldrix) as socket:

        async def attempt(task: Task, seed: int) -> Attempt:
            env = environment(place) | _settings(conditions, socket, seed)
            ended = await run(_words(task, conditions), place.repo(task), env, conditions.limit_s)
            return _attempt(ended, place.home / "data")

        yield attempt


@contextlib.asynccontextmanager
async def _pool(folder: Path, conditions: Conditions, caldrix: Sequence[str]) -> AsyncIterator[Path]:
    emptied(folder)
    socket = folder / "p.sock"
    flags = ["--window", str(conditions.window), "--idle-timeout", "0", "--log", str(folder / "pool.log")]
    flags += ["--threads", str(conditions.threads)] if conditions.threads else []
    command = [*caldrix, "pool", "--socket", str(socket), "--load", f"{conditions.model}=main", *flags]
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "STATE")}

    async def ready() -> bool:
        try:
            await (await PoolClient.connect(socket, "trial")).aclose()
        except (CaldrixError, OSError):
            return False
        return True

    async with started(command, homes, folder / "pool.out", ready) as process:
        yield socket
        with contextlib.suppress(CaldrixError, OSError):
            async with await PoolClient.connect(socket, "trial") as client:
                await client.stop()
        await gone(process)


def _words(task: Task, conditions: Conditions) -> list[str]:
    route = ["--route", conditions.route] if conditions.route else []
    turns = ["--max-turns", str(conditions.max_turns)]
    return [sys.executable, "-m", "aerix_cli", "-p", task.request, "--output-format", "json", *turns, *route]


def _settings(conditions: Conditions, socket: Path, seed: int) -> dict[str, str]:
    values = {
        "main.model": str(conditions.model),
        "pool.socket": str(socket),
        # Should the trial's pool be gone, the run says so and starts no other.
        "pool.caldrix": "false",
        "context.max_new_tokens": str(conditions.max_new_tokens),
        # --max-turns bounds the root; this the pieces it gives away.
        "delegation.max_turns": str(conditions.max_turns),
        "sampling.temperature": str(conditions.temperature),
        "sampling.seed": str(seed * SEED_STEP),
        **conditions.settings,
    }
    return {f"AERIX_{key.upper().replace('.', '_')}": value for key, value in values.items()}


def _attempt(ended: Ended, data: Path) -> Attempt:
    if ended.code in (EXIT_POOL, EXIT_USAGE):
        raise TrialFailed(f"aerix cannot run: {ended.stderr.strip() or ended.stdout.strip()}")
    result = _result(ended.stdout)
    events = read_log(data)
    outcome = str(result.get("outcome", "failed")) if ended.in_time else "timeout"
    reason = result.get("reason") or ("" if result else f"exit code {ended.code}: {short(ended.stderr)}")
    return Attempt(
        outcome=outcome,
        reason=str(reason),
        answer=str(result.get("text") or ""),
        figures=figures(events),
        seconds=ended.seconds,
        trace=tuple(trace(events)),
    )


def _result(stdout: str) -> dict[str, Any]:
    """The one JSON object of a headless run; empty when it printed none."""
    try:
        value = json.loads(stdout)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
