"""Text that UTF-8 can carry. A Python string may hold lone surrogates (from a file name, or from JSON's `\\ud800`)."""

from __future__ import annotations

from typing import Any


def encodable(value: Any) -> Any:
    """`value`, a tree of maps, lists and scalars, with each lone surrogate of its strings written out as `\\udXXX`."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {encodable(key): encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encodable(item) for item in value]
    return value


def is_encodable(value: Any) -> bool:
    """Whether every string in `value`, a tree of maps, lists and scalars, can be written as UTF-8."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return False
        return True
    if isinstance(value, dict):
        return all(is_encodable(key) and is_encodable(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(is_encodable(item) for item in value)
    return True
