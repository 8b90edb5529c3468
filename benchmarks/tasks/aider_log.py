"""What aider's own files tell of a run. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.tasks.record import Figures
from benchmarks.tasks.session_log import short

MALFORMED: Final = "did not conform to the edit format"
_RESPONSE: Final = re.compile(r"^LLM RESPONSE .*$", re.MULTILINE)
_SAID: Final = "ASSISTANT "
_TOLD: Final = ("Applied edit", "The LLM did not", "Model ", "Error", "litellm.", "Tokens:", "# Fix any errors")


def figures(events: str, stdout: str) -> Figures:
    """`events` is its analytics log, which stays on this machine. It has no calls, pieces or compactions to count."""
    sent = [event["properties"] for event in _events(events) if event.get("event") == "message_send"]
    return Figures(
        turns=len(sent),
        errors=stdout.count(MALFORMED),
        # It goes on by itself only to have something mended: a format, a lint error.
        reasks=max(0, len(sent) - 1),
        read=sum(int(one.get("prompt_tokens", 0)) for one in sent),
        written=sum(int(one.get("completion_tokens", 0)) for one in sent),
    )


def answers(history: str) -> list[str]:
    """Every answer of the model, from its history of the model's messages."""
    found = []
    for part in _RESPONSE.split(history)[1:]:
        lines = part.strip("\n").split("\n")
        said = [line.removeprefix(_SAID) for line in lines if line.startswith(_SAID) or line == _SAID.strip()]
        found.append("\n".join("" if line == _SAID.strip() else line for line in said))
    return found


def answer(history: str) -> str:
    """The last answer; empty when there is none."""
    found = answers(history)
    return found[-1] if found else ""


def trace(history: str, stdout: str) -> Iterator[str]:
    """Its answers in short, then what it said it did."""
    for number, text in enumerate(answers(history), 1):
        yield f"turn {number}: {short(text)}"
    for line in stdout.split("\n"):
        if line.startswith(_TOLD):
            yield f"aider: {short(line)}"


def _events(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.split("\n"):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found
