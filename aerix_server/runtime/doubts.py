"""Doubts: calls whose tool or path the model itself found unlikely. Pure.

The log-probabilities are the model's before the constraint's mask. Those are the useful ones: where the constraint
leaves only paths that are there, the likeliest of them looks certain under the mask, and that the model wanted to
write something else is seen before it only. A token that the constraint forced says nothing: the model had no choice.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from aerix_server.pool.port import TokenLogprob
from aerix_server.protocol.events import Call, Doubt

_BROKEN: Final = "\ufffd"
_WORD: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+', re.DOTALL)

Place = tuple[str | int, ...]
Field = Literal["tool", "path"]


def find_doubts(raw: str, tokens: Sequence[TokenLogprob], calls: Sequence[Call], below: float) -> tuple[Doubt, ...]:
    """The tools and paths of a turn's calls with a token less likely than `below`, in their order in `raw`.

    `raw` is the turn's text and `tokens` are its own; without tokens nothing is known, so nothing is doubted.
    """
    chances = _chances(raw, tokens)
    doubts = []
    for place, start, end in _strings(raw) if chances else ():
        match place:
            case ("calls", int(number), "tool"):
                field: Field = "tool"
            case ("calls", int(number), "input", "path"):
                field = "path"
            case _:
                continue
        least = min(chances[start:end], default=1.0)
        if number < len(calls) and least < below:
            doubts.append(
                Doubt(call=calls[number].id, field=field, value=json.loads(raw[start - 1 : end + 1]), probability=least)
            )
    return tuple(doubts)


def _strings(raw: str) -> Iterator[tuple[Place, int, int]]:
    """Each string value of a JSON text: its place in the whole, and the begin and the end of its text in `raw`."""
    place: list[str | int] = []
    key_next = False
    for match in _WORD.finditer(raw):
        word = match[0]
        if word in "{[":
            place.append("" if word == "{" else 0)
            key_next = word == "{"
        elif not place:
            continue
        elif word in "}]":
            place.pop()
        elif word == ",":
            last = place[-1]
            key_next = isinstance(last, str)
            place[-1] = last if isinstance(last, str) else last + 1
        elif word == ":":
            key_next = False
        elif word.startswith('"') and key_next:
            place[-1] = json.loads(word, strict=False)
        elif word.startswith('"'):
            yield tuple(place), match.start() + 1, match.end() - 1


def _chances(raw: str, tokens: Sequence[TokenLogprob]) -> list[float]:
    """Of each character, how likely its token was; empty where the tokens are not those of the text."""
    chances: list[float] = []
    waiting = list(tokens)
    while waiting:
        count = next((n for n, token in enumerate(waiting) if _BROKEN not in token.text), len(waiting))
        group, waiting = waiting[: count or 1], waiting[count or 1 :]
        length = _length(raw, len(chances), group, waiting)
        if length is None:
            return []
        chances += [min(1.0 if token.forced else math.exp(token.logprob) for token in group)] * length
    return chances


def _length(raw: str, at: int, group: Sequence[TokenLogprob], following: Sequence[TokenLogprob]) -> int | None:
    """How many characters of `raw` the tokens are. Those of a group that break characters are taken together."""
    text = "".join(token.text for token in group)
    if _BROKEN not in text:
        return len(text) if raw.startswith(text, at) else None
    parts = (re.escape(part) for part in re.split(f"{_BROKEN}+", text))
    after = re.escape(following[0].text) if following else r"\Z"
    match = re.compile(r"[^\x00-\x7f]+?".join(parts) + f"(?={after})").match(raw, at)
    return match.end() - at if match else None
