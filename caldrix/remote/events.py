"""Server-sent events: bytes in, decoded JSON out. Pure.

Only `data:` lines matter here; comments (`:`, sent as signs of life) and other fields are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

MAX_LINE_BYTES: Final = 64 << 20
END: Final = "[DONE]"

Event = dict[str, Any]


class MalformedStream(Exception):
    """Bytes that are no event stream of JSON objects; the message quotes them."""


class Events:
    """`feed` gives the events whose line is whole. `[DONE]` becomes an empty event."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Raises MalformedStream."""
        self._rest += piece
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        if len(rest) > MAX_LINE_BYTES:
            raise MalformedStream(f"a line of more than {MAX_LINE_BYTES} bytes")
        for line in lines:
            event = _event(bytes(line).rstrip(b"\r"))
            if event is not None:
                yield event


def _event(line: bytes) -> Event | None:
    name, mark, value = line.partition(b":")
    if not line or not name:  # a blank line ends an event, a leading colon makes a comment
        return None
    if name in (b"event", b"id", b"retry"):
        return None
    if name != b"data" or not mark:
        raise MalformedStream(_quoted(line))
    text = value.strip()
    if text == END.encode():
        return {}
    try:
        event = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedStream(_quoted(line)) from error
    if not isinstance(event, dict):
        raise MalformedStream(_quoted(line))
    return event


def _quoted(line: bytes) -> str:
    return line[:200].decode("utf-8", "replace")
