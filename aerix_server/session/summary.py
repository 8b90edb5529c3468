"""What a list shows of a session, from its events. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from aerix_server.protocol.events import ProfileInfo
from aerix_server.protocol.messages import Session

TITLE_CHARS = 80


def title_of(prompt: str) -> str:
    """The first line that says something, cut to 80 characters."""
    line = next((line for line in prompt.split("\n") if line.strip()), "")
    words = " ".join(line.split())
    return words if len(words) <= TITLE_CHARS else words[: TITLE_CHARS - 1].rstrip() + "…"


def summarise(events: Sequence[dict[str, Any]]) -> Session | None:
    """None when no session.start is among them."""
    starts = [event for event in events if event["type"] == "session.start"]
    if not starts or not isinstance(starts[0].get("id"), str):
        return None
    first, last = starts[0], starts[-1]
    requests = [event for event in events if event["type"] == "request.start"]
    prompt = str(requests[0].get("prompt", "")) if requests else ""
    return Session(
        id=first["id"],
        cwd=str(first.get("cwd", "")),
        project=str(first.get("project", "")),
        title=str(first.get("title") or title_of(prompt)),
        created=str(first.get("time", "")),
        updated=str(events[-1].get("time", "")),
        requests=len(requests),
        model=str(last.get("model", "")),
        profile=_profile(last.get("profile")),
        state="idle",
    )


def _profile(value: Any) -> ProfileInfo | None:
    try:
        return ProfileInfo.model_validate(value) if value is not None else None
    except ValidationError:
        return None
