"""What edit says when the text to replace is not there: the lines that come nearest, with their numbers."""

from __future__ import annotations

import difflib
import heapq
import re

from aerix_server.tools.text import speakable

_NEAR_LINES = 3
_LEAST_LIKENESS = 0.6
_COMPARED_LINES = 20_000
_SCORED_LINES = 100
"""So many lines, the likeliest by their letters, are compared in order too: that costs the square of their length."""
_SHOWN_CHARS = 200
_NUMBERED = re.compile(r"\s*\d+\t")


def not_found(text: str, old: str, shown: str) -> str:
    """The sentence, and the lines. `text` and `old` have `\\n` endings."""
    head = f"old was not found in {shown}"
    wanted = old.split("\n")
    if all(_NUMBERED.match(line) for line in wanted if line.strip()) and old.strip():
        return f"{head}: it begins with line numbers, which are not part of the file"
    lines = text.split("\n")
    at = _same_but_spaces(lines, wanted)
    if at is not None:
        span = f"lines {at + 1}-{at + len(wanted)}" if len(wanted) > 1 else f"line {at + 1}"
        return f"{head}; {span} differ in spaces only:\n{_numbered(lines, range(at, at + len(wanted)))}"
    near = _nearest(lines, wanted)
    if not near:
        return f"{head}, and no line comes near it; read the file first"
    return f"{head}; the nearest lines are:\n{_numbered(lines, near)}"


def _same_but_spaces(lines: list[str], wanted: list[str]) -> int | None:
    """Where `wanted` stands when the spaces in and around its lines are not compared."""
    aim = [_squeezed(line) for line in wanted]
    if not any(aim):
        return None
    have = [_squeezed(line) for line in lines[:_COMPARED_LINES]]
    for at in range(len(have) - len(aim) + 1):
        if have[at] == aim[0] and have[at : at + len(aim)] == aim:
            return at
    return None


def _squeezed(line: str) -> str:
    return "".join(line.split())


def _nearest(lines: list[str], wanted: list[str]) -> list[int]:
    """Indexes of the lines most like the longest wanted line, in the file's order."""
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(max((line.strip() for line in wanted), key=len)[:_SHOWN_CHARS])
    likely: list[tuple[float, int]] = []
    for index, line in enumerate(lines[:_COMPARED_LINES]):
        matcher.set_seq1(line.strip()[:_SHOWN_CHARS])
        if matcher.real_quick_ratio() >= _LEAST_LIKENESS and (letters := matcher.quick_ratio()) >= _LEAST_LIKENESS:
            likely.append((letters, index))
    scores: list[tuple[float, int]] = []
    for _, index in heapq.nlargest(_SCORED_LINES, likely):
        matcher.set_seq1(lines[index].strip()[:_SHOWN_CHARS])
        scores.append((matcher.ratio(), index))
    best = sorted((score for score in scores if score[0] >= _LEAST_LIKENESS), reverse=True)[:_NEAR_LINES]
    return sorted(index for _, index in best)


def _numbered(lines: list[str], indexes: range | list[int]) -> str:
    return "\n".join(f"{index + 1:6d}\t{speakable(lines[index][:_SHOWN_CHARS])}" for index in list(indexes)[:20])
