"""Is a value a JSON Schema at all? Pure. What a grammar cannot do with a good one is for the pool to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})
DEPTH: Final = 64
"""How deep a schema may nest."""


def schema_fault(schema: Any, path: str = "", depth: int = 0) -> str | None:
    """The first fault with its path, such as `properties.size.type: …`; None for a schema that can be used."""
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, dict):
        return _at(path, "a schema is an object")
    if depth > DEPTH:
        return _at(path, f"nested deeper than {DEPTH}")
    for key, check in _KEYWORDS.items():
        if key in schema and not check[0](schema[key]):
            return _at(f"{path}.{key}" if path else key, check[1])
    for name, part in _parts(schema):
        if fault := schema_fault(part, f"{path}.{name}" if path else name, depth + 1):
            return fault
    return None


def _parts(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    """The schemas inside, with their names."""
    parts: list[tuple[str, Any]] = []
    for key in ("properties", "patternProperties", "$defs", "definitions"):
        parts += [(f"{key}.{name}", part) for name, part in schema.get(key, {}).items()]
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        parts += [(f"{key}.{index}", part) for index, part in enumerate(schema.get(key, []))]
    parts += [(key, schema[key]) for key in ("items", "additionalProperties", "not") if key in schema]
    return parts


def _at(path: str, fault: str) -> str:
    return f"{path}: {fault}" if path else fault


def _is_type(value: Any) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return bool(kinds) and all(isinstance(kind, str) and kind in TYPES for kind in kinds)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_choice(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_Check = tuple[Callable[[Any], bool], str]
_KEYWORDS: Final[dict[str, _Check]] = {
    "type": (_is_type, f"must be one of {', '.join(sorted(TYPES))}, or a list of them"),
    **dict.fromkeys(("properties", "patternProperties", "$defs", "definitions"), (_is_object, "must be an object")),
    **dict.fromkeys(("enum", "anyOf", "oneOf", "allOf"), (_is_choice, "must be a list that is not empty")),
    "prefixItems": (lambda value: isinstance(value, list), "must be a list"),
    "required": (_is_names, "must be a list of names"),
    **dict.fromkeys(("pattern", "format", "$ref"), (_is_text, "must be a string")),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        (_is_count, "must be a whole number that is not negative"),
    ),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), (_is_number, "must be a number")),
}
