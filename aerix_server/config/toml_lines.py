"""Where a key stands in a TOML text: the standard parser gives values without their lines. Pure."""

from __future__ import annotations

import re
import tomllib

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]\]?")
_ASSIGNMENT = re.compile(rf"\s*({_DOTTED})\s*=")
_MULTILINE = re.compile(r'"""|\'\'\'')


def line_of(text: str, key: str) -> int | None:
    """The line, from 1, that sets the dotted `key` or the nearest table above it; None when none does."""
    wanted = tuple(key.split("."))
    best: tuple[int, int] | None = None
    for number, path in _paths(text):
        shared = len(path) if wanted[: len(path)] == path else 0
        if shared and (best is None or shared > best[0]):
            best = (shared, number)
    return best[1] if best else None


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
