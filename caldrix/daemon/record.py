"""A request's line in the log. Pure."""

from __future__ import annotations

from typing import Any, Final, get_args

from caldrix.protocol.messages import ContextInfo, Done, Error, MemberLoaded, Message, Request

_KINDS: Final = {kind.model_fields["type"].default for kind in get_args(get_args(Request)[0])}


def kind_of(payload: dict[str, Any]) -> str:
    """The type of a request that could not be parsed; "unknown" for anything that a client made up."""
    kind = payload.get("type")
    return kind if isinstance(kind, str) and kind in _KINDS else "unknown"


def facts_of(request: Message, reply: Message) -> dict[str, Any]:
    """Which member and context it was about, how it ended, its tokens and times, and where it resumed.

    `outcome` is how a generation finished, the code of an error, or "ok".
    """
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
        case MemberLoaded(member=member):
            facts |= {"outcome": "ok", "member": member.member, "footprint_bytes": member.footprint_bytes}
        case _:
            facts["outcome"] = "ok"
    return facts
