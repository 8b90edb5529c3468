"""The tasks: each a folder of `set/` with a repository, a request, and what an attempt is checked against."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from benchmarks.tasks.errors import TrialFailed

SET: Final = Path(__file__).with_name("set")


class _File(BaseModel):
    """A `task.toml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    request: str
    kind: Literal["edit", "answer"]
    files: tuple[str, ...]
    may_change: tuple[str, ...] = ()
    answer: str = ""
    mutants: str | None = None


@dataclass(frozen=True)
class Task:
    """A request on a repository.

    `may_change`: the only files that may be another afterwards. `files`: what an agent is handed that does not look for
    itself. `answer`: a right one, of a task that is only answered. `mutants`: the file that the folder `mutants` holds
    broken versions of, each of which the tests of an attempt must notice.
    """

    name: str
    folder: Path
    request: str
    kind: Literal["edit", "answer"]
    files: tuple[str, ...]
    may_change: tuple[str, ...]
    answer: str
    mutants: str | None

    @property
    def repo(self) -> Path:
        return self.folder / "repo"

    @property
    def hidden(self) -> Path:
        """Tests that an agent never sees."""
        return self.folder / "hidden"

    @property
    def solution(self) -> Path:
        """The changed files of a right attempt, whole."""
        return self.folder / "solution"


def all_tasks() -> list[Task]:
    """Every task, by name."""
    return [_load(path.parent) for path in sorted(SET.glob("*/task.toml"))]


def tasks(names: Sequence[str]) -> list[Task]:
    """The named ones in the set's order; all of them when none is named. Raises TrialFailed for an unknown name."""
    known = all_tasks()
    unknown = sorted(set(names) - {task.name for task in known})
    if unknown:
        raise TrialFailed(f"no such task: {', '.join(unknown)}; there are {', '.join(task.name for task in known)}")
    return [task for task in known if not names or task.name in names]


def _load(folder: Path) -> Task:
    found = _File.model_validate(tomllib.loads((folder / "task.toml").read_text("utf-8")))
    return Task(
        name=folder.name,
        folder=folder,
        request=found.request.strip(),
        kind=found.kind,
        files=found.files,
        may_change=found.may_change,
        answer=found.answer.strip(),
        mutants=found.mutants,
    )
