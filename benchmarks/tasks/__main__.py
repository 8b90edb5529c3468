"""`python -m benchmarks.tasks`: an agent on every task, with each seed; and tables of what was run."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path

from benchmarks.pool import facts
from benchmarks.pool.errors import NotMeasured
from benchmarks.pool.llama_server import find_build
from benchmarks.tasks import aider, record, table
from benchmarks.tasks.aerix import aerix
from benchmarks.tasks.agent import Agent, Conditions
from benchmarks.tasks.arguments import Arguments, parse
from benchmarks.tasks.errors import TrialFailed
from benchmarks.tasks.place import Place, held
from benchmarks.tasks.sitting import sit
from benchmarks.tasks.task import tasks
from caldrix.models.refs import resolve
from caldrix.protocol.errors import Refused


def main() -> int:
    """0 when every run was made to its end, solved or not."""
    given = parse(sys.argv[1:])
    # Whoever ends this program by a signal must not be left with its pool.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if given.model is not None:
            asyncio.run(_sit(given, resolve(given.model).absolute()))
        if given.compare:
            _compare(given)
    except Refused as refused:
        print(refused.message, file=sys.stderr)
        return 1
    except (TrialFailed, NotMeasured) as reason:
        print(reason, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0


async def _sit(given: Arguments, model: Path) -> None:
    chosen = tasks(given.tasks)
    conditions = _conditions(given, model)
    sitting = record.Sitting(label=given.label, agent=given.agent, facts=await _facts(given, conditions))
    if given.out:
        record.append(given.out, sitting)
    made: list[record.Run] = []
    with held(given.root) as place:
        async with (
            _agent(given, place, conditions) as agent,
            aclosing(sit(agent, place, chosen, given.seeds, given.label, given.keep)) as runs,
        ):
            async for run in runs:
                made.append(run)
                if given.out:
                    record.append(given.out, run)
                _tell(run, given.trace)
    print("\n".join(["", *table.conditions([sitting]), "", *table.by_task(made)]))


def _agent(given: Arguments, place: Place, conditions: Conditions) -> AbstractAsyncContextManager[Agent]:
    if given.agent == "aider":
        return aider.aider(place, conditions, given.aider, given.server)
    return aerix(place, conditions)


def _conditions(given: Arguments, model: Path) -> Conditions:
    return Conditions(
        model=model,
        window=given.window,
        max_new_tokens=given.max_new_tokens,
        temperature=given.temperature,
        max_turns=given.max_turns,
        limit_s=given.limit_s,
        threads=given.threads,
        route=given.route,
        settings=given.settings,
    )


async def _facts(given: Arguments, conditions: Conditions) -> dict[str, str]:
    known = {"machine": facts.machine(), "load before": facts.load(), **conditions.facts()}
    if given.agent == "aider":
        return known | {"version": await aider.version(given.aider), "engine": (await find_build(given.server)).version}
    return known | conditions.of_aerix() | {"engine": facts.versions()}


def _tell(run: record.Run, trace: bool) -> None:
    lines = table.traced(run) if trace and not run.solved else [table.told(run)]
    print("\n".join(lines), flush=True)


def _compare(given: Arguments) -> None:
    values = [value for path in given.compare for value in record.read(path)]
    made = record.runs(values)
    sittings = [value for value in values if isinstance(value, record.Sitting)]
    if given.trace:
        for run in made:
            _tell(run, trace=True)
    print("\n".join(["", *table.conditions(sittings), "", *table.compared(made)]))


if __name__ == "__main__":
    sys.exit(main())
