"""A chat as a Markdown file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from caldrix.protocol.messages import Segment
from caldrix.protocol.text import encodable


def save(path: Path, model: str, system: str | None, turns: Sequence[Segment]) -> None:
    """Write a new file. Raises OSError (FileExistsError where one is there), RuntimeError for `~name` of nobody."""
    with path.expanduser().open("x", encoding="utf-8") as file:
        file.write(encodable(markdown(model, system, turns)))


def markdown(model: str, system: str | None, turns: Sequence[Segment]) -> str:
    """A heading, then each turn under the name of who said it. Pure."""
    said = [("system", system)] if system else []
    said += [(turn.role, turn.text) for turn in turns]
    return "\n\n".join([f"# Chat with {model}", *(f"## {role}\n\n{text.strip()}" for role, text in said)]) + "\n"
