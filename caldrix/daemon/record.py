"""A request's line in the log. Pure."""

from __future__ import annotations

from typing import Any

from caldrix.protocol.messages import ContextInfo, Done, Error, Message


def facts_of(request: Message, reply: Message) -> dict[str, Any]:
    """Which member and context it was about, how it ended, its tokens and times, and where it resumed."""
    facts: dict[str, Any] = {
        name: value
        for name in ("member", "context", "target")
        if isinstance(value := getattr(request, name, None), str | int)
    }
    match reply:
        case Error(code=code):
            facts["outcome"] = code
        case Done(finish=finish, usage=usage, timing=timing):
            facts |= {"outcome": finish, **usage.model_dump(), **timing.model_dump()}
        case ContextInfo(context=context, member=member, tokens=tokens, version=version):
            facts |= {"outcome": "ok", "context": context, "member": member, "tokens": tokens, "version": version}
        case _:
            facts["outcome"] = "ok"
    return facts
