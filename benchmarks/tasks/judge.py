"""Whether an attempt solves its task, and if not, why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.tasks.checks import CHECKS
from benchmarks.tasks.hidden import fault
from benchmarks.tasks.task import Task
from benchmarks.tasks.tree import Tree, changed, damage, picture


@dataclass(frozen=True)
class Verdict:
    """`why`: one sentence where it is not solved, else empty. `files`: what is another than before."""

    solved: bool
    why: str
    files: tuple[str, ...]


async def judge(task: Task, before: Tree, attempt: Path, answer: str) -> Verdict:
    """`before` is the picture of the repository that the agent began with, `attempt` what it left of it."""
    after = picture(attempt)
    why = damage(before, after, task.may_change)
    files = tuple(changed(before, after))
    if why is None and task.kind == "edit":
        why = None if files else "nothing was changed"
        why = why or await fault(task, attempt)
    if why is None and task.name in CHECKS:
        why = CHECKS[task.name](task.repo, attempt, answer)
    return Verdict(why is None, why or "", files)
