"""Which segments compaction replaces, and by what. Pure: counts of the pool in, replacements out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aerix_server.protocol.events import Role

SKIP_TOKENS: Final = 24
"""A segment this short is not worth a marker."""

FOLD_LEFT: Final = 4
"""So many of the latest short segments are not folded."""

_RESULT = re.compile(r"(?P<tool>[\w.-]+) (?P<call>c\d+)")
_JOB = re.compile(r"job (?P<job>j\d+)")
_FOLDED = re.compile(r"\[compacted (?P<count>\d+) earlier results and turns \((?P<tokens>\d+) tokens\)\]")
_MARKED = re.compile(r"\[compacted .*?(?P<tokens>\d+) tokens\)\]")


@dataclass(frozen=True)
class Held:
    """A segment as the context holds it; `tokens` is the pool's count."""

    id: str
    role: Role
    label: str
    text: str
    pinned: bool
    tokens: int


@dataclass(frozen=True)
class Replacement:
    id: str
    marker: str
    tokens: int


def soft_limit(window: int, ratio: float) -> int:
    return int(window * ratio)


def turn_tokens(max_new_tokens: int, window: int) -> int:
    """What a turn asks for."""
    return max(min(max_new_tokens, window // 4), 1)


def seen(segments: Sequence[Held]) -> Sequence[Held]:
    """The segments up to the last turn: what comes after it the model has not read yet."""
    last = max((at for at, segment in enumerate(segments) if segment.role == "assistant"), default=-1)
    return segments[: last + 1]


def gain(segments: Sequence[Held]) -> int:
    """The tokens that replacing and folding all that may be would free, taking SKIP_TOKENS for each marker."""
    freed = sum(segment.tokens - SKIP_TOKENS for segment in segments if _is_result(segment) or _is_turn(segment))
    folds = _foldable(segments)
    return freed + max(sum(segment.tokens for segment in folds) - SKIP_TOKENS, 0)


def plan(segments: Sequence[Held], excess: int) -> tuple[Replacement, ...]:
    """The next segments to replace so that about `excess` tokens go: tool results oldest first, then assistant turns.

    A marker's own length is known only once the pool has counted it; the caller counts again and asks again.
    """
    chosen: list[Replacement] = []
    for segment in [*filter(_is_result, segments), *filter(_is_turn, segments)]:
        if excess <= 0:
            break
        chosen.append(Replacement(segment.id, marker(segment), segment.tokens))
        excess -= segment.tokens - SKIP_TOKENS
    return tuple(chosen)


def marker(segment: Held) -> str:
    """The line that stands in a compacted segment's place."""
    result = _RESULT.fullmatch(segment.label)
    if result:
        return f"[compacted tool result of call {result['call']} ({result['tool']}, {segment.tokens} tokens)]"
    job = _JOB.fullmatch(segment.label)
    if job:
        return f"[compacted output of job {job['job']} ({segment.tokens} tokens)]"
    return f"[compacted {segment.label} ({segment.tokens} tokens)]"


@dataclass(frozen=True)
class Fold:
    """Many short segments made one: the text of `kept`, and those that go."""

    kept: Held
    text: str
    gone: tuple[Held, ...]


def fold(segments: Sequence[Held]) -> Fold | None:
    """Earlier markers, and results and turns too short for one, as a single line; None where that frees nothing.

    Each marker is short, but a long run makes so many that in the end they fill the window.
    """
    chosen = _foldable(segments)
    kept = next((segment for segment in chosen if segment.role == "user"), None)
    if kept is None or sum(segment.tokens for segment in chosen) <= 2 * SKIP_TOKENS:
        return None
    told = [_folded(segment) for segment in chosen]
    count, tokens = sum(one for one, _ in told), sum(one for _, one in told)
    text = f"[compacted {count} earlier results and turns ({tokens} tokens)]"
    return Fold(kept, text, tuple(segment for segment in chosen if segment is not kept))


def _foldable(segments: Sequence[Held]) -> list[Held]:
    short = [
        segment
        for segment in segments
        if not segment.pinned
        and (segment.text.startswith("[compacted ") or segment.tokens <= SKIP_TOKENS)
        and (segment.role == "assistant" or _names_result(segment))
    ]
    return short[: max(len(short) - FOLD_LEFT, 0)]


def _folded(segment: Held) -> tuple[int, int]:
    """How many results and turns a segment stands for, and how many tokens they had."""
    if folded := _FOLDED.fullmatch(segment.text):
        return int(folded["count"]), int(folded["tokens"])
    marked = _MARKED.fullmatch(segment.text)
    return 1, int(marked["tokens"]) if marked else segment.tokens


def _replaceable(segment: Held) -> bool:
    return not segment.pinned and segment.tokens > SKIP_TOKENS and not segment.text.startswith("[compacted ")


def _is_result(segment: Held) -> bool:
    return _names_result(segment) and _replaceable(segment)


def _names_result(segment: Held) -> bool:
    named = _RESULT.fullmatch(segment.label) or _JOB.fullmatch(segment.label)
    return segment.role == "user" and named is not None


def _is_turn(segment: Held) -> bool:
    return segment.role == "assistant" and _replaceable(segment)


def largest(segments: Sequence[Held], count: int = 3) -> str:
    """The largest segments in words, for the end that names them."""
    ordered = sorted(segments, key=lambda segment: segment.tokens, reverse=True)[:count]
    return ", ".join(
        f"{segment.label} ({segment.id}, {segment.tokens} tokens{', pinned' if segment.pinned else ''})"
        for segment in ordered
    )
