"""Glob patterns over whole paths: `*` crosses `/`, `**/` may also be nothing, `{a,b}` is either."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from pathlib import PurePosixPath

from aerix_server.tools.base import ToolError

_MOST_ALTERNATIVES = 256
_MAGIC = re.compile(r"[*?\[{]")


def matcher(pattern: str) -> Callable[[str], bool]:
    """Tells whether a path, relative and with `/`, matches. Raises ToolError for a pattern that is too wide."""
    # fnmatch's translation never backtracks over an earlier `*`, so a match takes linear time.
    compiled = [re.compile(fnmatch.translate(plain)) for plain in alternatives(pattern.removeprefix("./"))]
    return lambda name: any(expression.match(name) for expression in compiled)


def alternatives(pattern: str) -> list[str]:
    """The pattern without braces and without `**`, as several patterns of which one must match."""
    pending, done = [pattern], list[str]()
    while pending:
        if len(pending) + len(done) > _MOST_ALTERNATIVES:
            raise ToolError(f"the pattern stands for more than {_MOST_ALTERNATIVES} patterns; use fewer braces")
        split = _split_once(pending.pop())
        if len(split) == 1:
            done.append(re.sub(r"\*{2,}", "*", split[0]))
        else:
            pending.extend(reversed(split))
    return list(dict.fromkeys(done))


def _split_once(pattern: str) -> list[str]:
    """The pattern with its first `**/` or brace taken apart; itself alone when it has neither."""
    found = re.search(r"(?:^|(?<=/))\*\*/", pattern)
    if found:
        head, tail = pattern[: found.start()], pattern[found.end() :]
        return [f"{head}{tail}", f"{head}*/{tail}"]
    brace = _brace(pattern)
    if brace is None:
        return [pattern]
    start, end = brace
    return [f"{pattern[:start]}{choice}{pattern[end:]}" for choice in _choices(pattern[start + 1 : end - 1])]


def _brace(pattern: str) -> tuple[int, int] | None:
    """Start and end of the first outermost `{…}` that holds a comma."""
    depth, start = 0, 0
    for at, character in enumerate(pattern):
        if character == "{":
            start = at if depth == 0 else start
            depth += 1
        elif character == "}" and depth:
            depth -= 1
            if depth == 0 and "," in pattern[start:at]:
                return start, at + 1
    return None


def _choices(inner: str) -> list[str]:
    """The parts of `a,{b,c},d` between the commas of its own level."""
    parts, depth = [""], 0
    for character in inner:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def split_base(pattern: str) -> tuple[str, str]:
    """The directory a pattern names before its first wild part, and the rest: (`../a`, `*.py`); (``, pattern)
    for a pattern that stays below the directory it is used in."""
    if not pattern.startswith(("/", "../", "~/")):
        return "", pattern
    parts = PurePosixPath(pattern).parts
    fixed = next((index for index, part in enumerate(parts) if _MAGIC.search(part)), len(parts) - 1)
    return str(PurePosixPath(*parts[:fixed])), "/".join(parts[fixed:])
