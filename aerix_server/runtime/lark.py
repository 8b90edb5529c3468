"""Words of a Lark grammar as the pool's compiler reads it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

JSON_STYLE: Final[Mapping[str, Any]] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
"""How the pool's Json constraint spaces a value; a schema inside a grammar must be told of it."""


def literal(text: str) -> str:
    """What matches `text`. In ASCII: some characters, such as U+2028, break a literal."""
    return json.dumps(text)


def in_string(text: str) -> str:
    """What matches `text` as it is written inside a JSON string, one way of each character."""
    return literal(json.dumps(text, ensure_ascii=False)[1:-1])


def json_rule(name: str, schema: Mapping[str, Any]) -> str:
    """A rule for the JSON values of a schema."""
    return f"{name}: %json {json.dumps({**schema, 'x-guidance': JSON_STYLE})}"
