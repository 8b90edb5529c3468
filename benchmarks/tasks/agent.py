"""What an agent is to the trial: a function from a task to an attempt, under conditions that hold for all runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.tasks.record import Figures
from benchmarks.tasks.task import Task


@dataclass(frozen=True)
class Conditions:
    """The same for both agents: model file, context window and answer length in tokens, sampling, turns, seconds."""

    model: Path
    window: int
    max_new_tokens: int
    temperature: float
    max_turns: int
    limit_s: float
    threads: int | None = None
    route: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, str]:
        """For a reader."""
        return {
            "model": self.model.name,
            "window": str(self.window),
            "most tokens of an answer": str(self.max_new_tokens),
            "temperature": str(self.temperature),
            "wall limit, s": f"{self.limit_s:.0f}",
            "threads": str(self.threads or "chosen by the engine"),
        }

    def of_aerix(self) -> dict[str, str]:
        """Those that aider has not."""
        known = {"most turns": str(self.max_turns), "route": self.route or "chosen by the model"}
        return known | {f"setting {key}": value for key, value in sorted(self.settings.items())}


@dataclass(frozen=True)
class Attempt:
    """How a run ended, before it is judged. `outcome` is "timeout" where the wall limit ended it."""

    outcome: str
    reason: str
    answer: str
    figures: Figures
    seconds: float
    trace: tuple[str, ...]


Agent = Callable[[Task, int], Awaitable[Attempt]]
"""Works on the laid task with a seed. Raises TrialFailed when no run can work, as without a model."""
