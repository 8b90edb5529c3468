"""Which segments compaction replaces, and by what. Pure: counts of the pool in, replacements out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aerix_server.protocol.events import Role

SKIP_TOKENS: Final = 24
"""A segment this short is not worth a marker."""

_RESULT = re.compile(r"(?P<tool>[\w.-]+) (?P<call>c\d+)")
_JOB = re.compile(r"job (?P<job>j\d+)")


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
    """The tokens that replacing everything replaceable would free, taking SKIP_TOKENS for each marker."""
    return sum(segment.tokens - SKIP_TOKENS for segment in segments if _is_result(segment) or _is_turn(segment))


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


def _replaceable(segment: Held) -> bool:
    return not segment.pinned and segment.tokens > SKIP_TOKENS and not segment.text.startswith("[compacted ")


def _is_result(segment: Held) -> bool:
    named = _RESULT.fullmatch(segment.label) or _JOB.fullmatch(segment.label)
    return segment.role == "user" and named is not None and _replaceable(segment)


def _is_turn(segment: Held) -> bool:
    return segment.role == "assistant" and _replaceable(segment)


def largest(segments: Sequence[Held], count: int = 3) -> str:
    """The largest segments in words, for the end that names them."""
    ordered = sorted(segments, key=lambda segment: segment.tokens, reverse=True)[:count]
    return ", ".join(
        f"{segment.label} ({segment.id}, {segment.tokens} tokens{', pinned' if segment.pinned else ''})"
        for segment in ordered
    )
