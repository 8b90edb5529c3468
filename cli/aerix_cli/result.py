"""What a headless run ended in, as the `result` object and as an exit code. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from aerix_cli.texts import json_safe
from aerix_server.protocol.events import Usage
from aerix_server.protocol.messages import DiffResult, Outcome
from aerix_server.protocol.outcomes import EXIT_CODES, EXIT_POOL, OutcomeKind

NO_DIFF = DiffResult(files=[], untracked=[], unified="")


@dataclass(frozen=True)
class Finished:
    """A run's end. `no_pool` tells that the pool was not there or refused the model."""

    outcome: Outcome
    session: str = ""
    request: str = ""
    turns: int = 0
    diff: DiffResult = NO_DIFF
    no_pool: bool = False

    @property
    def exit_code(self) -> int:
        return EXIT_POOL if self.no_pool else EXIT_CODES[self.outcome.outcome]


def ended(kind: OutcomeKind, reason: str, duration_ms: int) -> Outcome:
    """An outcome the server did not give."""
    return Outcome(outcome=kind, reason=reason, usage=Usage(), duration_ms=duration_ms, files_touched=[])


def result_object(finished: Finished, with_output: bool) -> dict[str, Any]:
    """`with_output`: an output schema was asked for, so that `output` is there even when it is null."""
    outcome = finished.outcome
    value: dict[str, Any] = {"type": "result", "outcome": outcome.outcome, "text": outcome.text or ""}
    if outcome.output is not None or (with_output and outcome.outcome == "final"):
        value["output"] = outcome.output
    if outcome.reason is not None:
        value["reason"] = outcome.reason
    return value | {
        "session": finished.session,
        "request": finished.request,
        "usage": outcome.usage.model_dump(),
        "duration_ms": outcome.duration_ms,
        "num_turns": finished.turns,
        "files_touched": outcome.files_touched,
        "diff": finished.diff.unified,
        "untracked": finished.diff.untracked,
    }


def json_line(value: dict[str, Any]) -> str:
    """One line of JSON in UTF-8 with nothing in it that steers a terminal."""
    return json_safe(json.dumps(value, ensure_ascii=False)) + "\n"


def answer_text(outcome: Outcome) -> str:
    """The answer for stdout; "" when there is none."""
    if outcome.text:
        return outcome.text
    return json.dumps(outcome.output, ensure_ascii=False) if outcome.output is not None else ""
