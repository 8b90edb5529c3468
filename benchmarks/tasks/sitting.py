"""All runs of one call of the program, in their order: every task with the first seed, then with the next."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.tasks.agent import Agent, Attempt
from benchmarks.tasks.errors import TrialFailed
from benchmarks.tasks.judge import Verdict, judge
from benchmarks.tasks.place import Place, keep, lay
from benchmarks.tasks.record import Run
from benchmarks.tasks.task import Task
from benchmarks.tasks.tree import picture

WARM_UP: Final = Task("warm-up", Path(__file__).with_name("warm_up"), "Say hello.", "answer", (), (), "", None)
"""Run first and not counted, so that every run finds the texts computed that all of them begin with."""


async def sit(
    agent: Agent, place: Place, tasks: Sequence[Task], seeds: Sequence[int], label: str, kept: Path | None = None
) -> AsyncGenerator[Run, None]:
    """Each run as soon as it is judged; `kept`: where every run's folders are moved. Raises TrialFailed."""
    lay(place, WARM_UP)
    first = await agent(WARM_UP, 0)
    if not first.figures.turns:
        said = "; ".join(word for word in (first.reason, *first.trace) if word)
        raise TrialFailed(f"the first request, which only warms up, gave no turn: {first.outcome}: {said}")
    for seed in seeds:
        for task in tasks:
            repo = lay(place, task)
            before = picture(repo)
            attempt = await agent(task, seed)
            verdict = await judge(task, before, repo, attempt.answer)
            if kept is not None:
                keep(place, task, kept / label / f"{task.name}-{seed}")
            yield _run(label, task, seed, attempt, verdict)


def _run(label: str, task: Task, seed: int, attempt: Attempt, verdict: Verdict) -> Run:
    return Run(
        label=label,
        task=task.name,
        seed=seed,
        solved=verdict.solved,
        why=verdict.why,
        outcome=attempt.outcome,
        reason=attempt.reason,
        figures=attempt.figures,
        seconds=round(attempt.seconds, 1),
        files=verdict.files,
        answer=attempt.answer,
        trace=attempt.trace,
    )
