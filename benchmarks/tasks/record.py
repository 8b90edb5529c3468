"""The runs of a trial as JSON lines: one for the sitting, with its conditions, and one for each run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.tasks.errors import TrialFailed


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sitting(_Line):
    """What holds for all runs of one call of the program. `facts`: machine, versions, limits; for a reader."""

    type: Literal["sitting"] = "sitting"
    label: str
    agent: str
    facts: dict[str, str]


class Figures(_Line):
    """What a run took. `None`: this agent does not tell.

    `turns`: answers of the model that could be used, of all agents. `reasks`: answers that could not. `read`: tokens of
    all prompts, those of `resumed` found computed already. `written`: tokens of all answers.
    """

    turns: int = 0
    calls: int | None = None
    errors: int = 0
    reasks: int = 0
    read: int = 0
    resumed: int | None = None
    written: int = 0
    compactions: int | None = None
    pieces: int | None = None
    verdicts: tuple[str, ...] = ()


class Run(_Line):
    """One attempt at a task. `seconds`: by the wall, from the agent's start to its end.

    `outcome`: how the agent said it ended, or "timeout". `trace`: its turns in short.
    """

    type: Literal["run"] = "run"
    label: str
    task: str
    seed: int
    solved: bool
    why: str
    outcome: str
    reason: str
    figures: Figures
    seconds: float
    files: tuple[str, ...]
    answer: str
    trace: tuple[str, ...]


def line(value: Sitting | Run) -> str:
    """One line of JSON."""
    return json.dumps(value.model_dump(), ensure_ascii=False) + "\n"


def append(path: Path, value: Sitting | Run) -> None:
    """Add a line; the file and its folder are made where they are not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(line(value))


def read(path: Path) -> list[Sitting | Run]:
    """Every line. Raises TrialFailed that names the line which is none."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TrialFailed(f"{path} cannot be read: {error}") from error
    values: list[Sitting | Run] = []
    for number, one in enumerate(text.split("\n"), 1):
        if not one.strip():
            continue
        try:
            value = json.loads(one)
            kind = value.get("type") if isinstance(value, dict) else None
            values.append(Sitting.model_validate(value) if kind == "sitting" else Run.model_validate(value))
        except (ValueError, ValidationError) as error:
            raise TrialFailed(f"{path}:{number} is no line of a trial: {error}") from error
    return values


def runs(values: Iterable[Sitting | Run]) -> list[Run]:
    """The runs among the lines."""
    return [value for value in values if isinstance(value, Run)]
