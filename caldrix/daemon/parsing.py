"""Payload → request, with a sentence for what is wrong with it. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Request, parse_request
from caldrix.protocol.text import encodable, is_encodable

FAULTS_SHOWN = 3
TEXT_SHOWN = 160


def request_id(payload: dict[str, Any]) -> int:
    """The payload's id, or 0 where none could be read."""
    value = payload.get("id")
    return value if type(value) is int and 0 <= value < 2**64 else 0


def parse(payload: dict[str, Any]) -> Request:
    """Raises Refused("bad_request") that names each fault by its field."""
    if not is_encodable(payload):
        raise Refused(
            "bad_request", "a text of the request holds a lone surrogate, which is no character; escape or replace it."
        )
    try:
        return parse_request(payload)
    except ValidationError as error:
        raise Refused("bad_request", refusal_text(error)) from error


def refusal_text(error: ValidationError) -> str:
    """A sentence about the first faults of a request. What the client sent is shown short, or not at all."""
    faults = error.errors(include_url=False, include_input=False)
    shown = [_fault(dict(fault)) for fault in faults[:FAULTS_SHOWN]]
    more = len(faults) - len(shown)
    return "; ".join(shown) + (f"; and {more} more." if more else ".")


def _fault(fault: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in fault["loc"]) or "the request"
    context = fault.get("ctx", {})
    if fault["type"] == "union_tag_invalid":
        known = context["expected_tags"].replace("'", "")
        return f"{where}: unknown {_bare(context)} {_short(context['tag'])!r}; known are {known}"
    if fault["type"] == "union_tag_not_found":
        return f"{where}: the field {_bare(context)!r} is missing"
    return f"{_short(where)}: {_short(fault['msg'])}"


def _bare(context: dict[str, Any]) -> str:
    return str(context["discriminator"]).strip("'")


def _short(text: str) -> str:
    clean: str = encodable(text)
    return clean if len(clean) <= TEXT_SHOWN else clean[:TEXT_SHOWN] + "…"
