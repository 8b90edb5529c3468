"""Files and ranges a client attached to a prompt, as the text the model reads under it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from aerix_server.protocol.messages import Attachment


def with_attachments(prompt: str, attachments: Sequence[Attachment]) -> str:
    """The prompt, and a list of what is attached where there is anything: paths and lines, which `read` can take."""
    if not attachments:
        return prompt
    return "\n".join([prompt, "", "Attached:", *(f"- {_place(item)}{_lines(item.range)}" for item in attachments)])


def _place(item: Attachment) -> str:
    parts = urlsplit(item.uri)
    return unquote(parts.path) if parts.scheme == "file" else item.uri


def _lines(span: dict[str, Any] | None) -> str:
    """An LSP range counts lines from 0, and one that ends at the start of a line does not hold it."""
    try:
        start, end = span["start"], span["end"]  # type: ignore[index]
        first = int(start["line"]) + 1
        last = int(end["line"]) + (1 if int(end["character"]) else 0)
    except (TypeError, KeyError, ValueError):
        return ""
    return f" (line {first})" if last <= first else f" (lines {first}-{last})"
