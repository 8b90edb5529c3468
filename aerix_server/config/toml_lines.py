"""Where the keys of a TOML text stand: the standard parser gives values without their lines. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]\]?")
_ASSIGNMENT = re.compile(rf"\s*({_DOTTED})\s*=")
_MULTILINE = re.compile(r'"""|\'\'\'')

KEY_PARTS = 32
_QUOTED_OR_BARE = r"""(?:[A-Za-z0-9_-]{1,200}|"(?:[^"\\\n]|\\.){0,200}"|'[^'\n]{0,200}')"""
_DEEP = re.compile(rf"(?<![A-Za-z0-9_-])(?:{_QUOTED_OR_BARE}[ \t]*\.[ \t]*){{{KEY_PARTS}}}")


def has_deep_key(text: str) -> bool:
    """Whether a dotted key has more than KEY_PARTS parts: the parser takes memory by the square of their number."""
    return _DEEP.search(text) is not None


def key_lines(text: str) -> Callable[[str], int | None]:
    """Gives the line, from 1, that sets a dotted key or the nearest table above it; None when none does."""
    first: dict[tuple[str, ...], int] = {}
    for number, path in _paths(text):
        first.setdefault(path, number)

    def line_of(key: str) -> int | None:
        path = tuple(key.split("."))
        above = (path[:length] for length in range(len(path), 0, -1))
        return next((first[part] for part in above if part in first), None)

    return line_of


def _paths(text: str) -> list[tuple[int, tuple[str, ...]]]:
    """Each line that opens a table or sets a key, with the whole path it names."""
    found: list[tuple[int, tuple[str, ...]]] = []
    table: tuple[str, ...] = ()
    inside: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if inside is None:
            if header := _HEADER.match(line):
                table = _parts(header[1])
                found.append((number, table))
            elif assignment := _ASSIGNMENT.match(line):
                found.append((number, table + _parts(assignment[1])))
        inside = _after(line, inside)
    return found


def _after(line: str, inside: str | None) -> str | None:
    """The quote of the multi-line string that is open after the line."""
    for match in _MULTILINE.finditer(line):
        if inside is None:
            inside = match[0]
        elif inside == match[0]:
            inside = None
    return inside


def _parts(dotted: str) -> tuple[str, ...]:
    node = tomllib.loads(f"{dotted} = 0")
    parts: list[str] = []
    while isinstance(node, dict):
        (name,) = node
        parts.append(name)
        node = node[name]
    return tuple(parts)
