"""The parts of a text that stand in it exactly once, as terminals of a Lark grammar. Pure.

A part begins at a line's start, at its first character that is no space, or at any later word or sign; it ends after a
word, a sign or a line. The longer a part, the rarer it is: so each place where a part may begin has a least end, after
which it may go on to any later one. The terminals are these least parts as a tree, and behind each of them the chain
of what follows; their number grows with the text, not with its parts. A part is written as in a JSON string.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aerix_server.config.bounds import UNIQUE_CHARS
from aerix_server.runtime.lark import in_string

_PIECE: Final = re.compile(r"[ \t]*(?:\n|\w+|[^\w \t\n])|[ \t]+\Z")
"""What a text is cut into: a line's end, a word or a sign, each with the space before it."""


@dataclass(frozen=True)
class Parts:
    """`ends`: where parts may end, rising. `least`: where a part may begin → the least of `ends` that makes it unique.

    Places are counted in characters.
    """

    ends: tuple[int, ...]
    least: dict[int, int]


@functools.lru_cache(maxsize=64)
def unique_parts(text: str) -> Parts:
    """A beginning that no UNIQUE_CHARS characters tell from another is left out, and one that nothing does."""
    pieces = [match.span() for match in _PIECE.finditer(text)]
    ends = tuple(end for _, end in pieces)
    shared = _shared_lengths(text)
    least = {}
    for start in _starts(text, pieces):
        wanted = start + shared[start] + 1
        if shared[start] < UNIQUE_CHARS and wanted <= len(text):
            least[start] = ends[bisect.bisect_left(ends, wanted)]
    return Parts(ends, least)


def _starts(text: str, pieces: Sequence[tuple[int, int]]) -> list[int]:
    starts = []
    for start, end in pieces:
        if start == 0 or text[start - 1] == "\n":
            starts.append(start)
        bare = end - len(text[start:end].lstrip(" \t"))
        if starts[-1:] != [bare] and bare < end:
            starts.append(bare)
    return starts


def _shared_lengths(text: str) -> list[int]:
    """For each place, how many characters from it on stand at another place too; at most UNIQUE_CHARS are counted."""
    tails = sorted((text[at : at + UNIQUE_CHARS], at) for at in range(len(text)))
    shared = [0] * len(text)
    for (first, at), (second, beside) in itertools.pairwise(tails):
        same = _same(first, second)
        shared[at] = max(shared[at], same)
        shared[beside] = max(shared[beside], same)
    return shared


def unique_terminals(text: str, name: str) -> str | None:
    """Lark terminals, of which `name` matches a JSON string (its quotes included) that holds a part of `text`.

    The others are called `name` and a number. None where no part of the text is unique.
    """
    parts = unique_parts(text)
    if not parts.least:
        return None
    numbers = {end: f"{name}{number}" for number, end in enumerate(parts.ends)}
    numbers[len(text)] = ""
    chain = [
        f"{numbers[start]}:({in_string(text[start:end])} {numbers[end]})?"
        for start, end in itertools.pairwise(parts.ends)
    ]
    first, tree = _tree(text, parts, numbers, name)
    return "\n".join([f'{name}: "\\"" {first} "\\""', *tree, *chain])


def _tree(text: str, parts: Parts, after: Mapping[int, str], name: str) -> tuple[str, list[str]]:
    """The least parts as a tree: its root's name, and a terminal for each place where parts that begin alike part.

    `after`: the terminal of what may follow each end.
    """
    terminals: list[str] = []

    def node(starts: Sequence[int], depth: int) -> str:
        """What `starts`, which share their first `depth` characters, go on with."""
        first, last = starts[0], starts[-1]
        if first == last:
            end = parts.least[first]
            return f"{in_string(text[first + depth : end])} {after[end]}"
        same = _same(text[first + depth : parts.least[first]], text[last + depth : parts.least[last]])
        branches = itertools.groupby(starts, lambda start: text[start + depth + same])
        choices = "|".join([node(list(group), depth + same) for _, group in branches])
        terminals.append(f"{name}_{len(terminals)}:{choices}")
        own = f"{name}_{len(terminals) - 1}"
        return f"{in_string(text[first + depth : first + depth + same])} {own}" if same else own

    root = node(sorted(parts.least, key=lambda start: text[start : parts.least[start]]), 0)
    return root, terminals


def _same(first: str, second: str) -> int:
    """How many characters they begin with alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(first), len(second)))
