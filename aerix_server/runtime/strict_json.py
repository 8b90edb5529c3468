"""JSON as the RFC means it. What Python's parser lets through beyond that is refused by name."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 64
MAX_INTEGER: Final = 2**63
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def loads(text: str) -> Any:
    """The value of `text`. Raises ValueError with a sentence: not JSON, NaN, out of range, a key twice, too deep."""
    if deepest(text) > MAX_DEPTH:
        raise ValueError(f"the JSON is nested deeper than {MAX_DEPTH} levels")
    return json.loads(
        text,
        object_pairs_hook=_unique,
        parse_constant=_refuse_constant,
        parse_float=_finite,
        parse_int=_bounded,
    )


def deepest(text: str) -> int:
    """How deep brackets nest outside strings."""
    depth = most = 0
    for match in _STRUCTURE.finditer(text):
        if match[0] in "[{":
            depth += 1
            most = max(most, depth)
        elif match[0] in "]}":
            depth -= 1
    return most


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            raise ValueError(f"the key {key[:40]!r} stands twice in one object")
        value[key] = item
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:20]} is out of range")
    return value


def _bounded(digits: str) -> int:
    if len(digits) > len(str(MAX_INTEGER)) or abs(int(digits)) > MAX_INTEGER:
        raise ValueError(f"the number {digits[:20]}… of {len(digits)} digits is out of range")
    return int(digits)
