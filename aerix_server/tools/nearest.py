"""What edit says when the text to replace is not there: the lines that come nearest, with their numbers."""

from __future__ import annotations

import difflib
import heapq
import re

from aerix_server.tools.base import ToolError
from aerix_server.tools.text import speakable

_NEAR_LINES = 3
_LEAST_LIKENESS = 0.6
_COMPARED_LINES = 20_000
_SCORED_LINES = 100
"""So many lines, the likeliest by their letters, are compared in order too: that costs the square of their length."""
_SHOWN_CHARS = 200
_TELLING_CHARS = 8
_NUMBERED = re.compile(r"\s*\d+\t")


def not_found(text: str, old: str, new: str, shown: str) -> ToolError:
    """The error, with the lines. All texts have `\\n` endings."""
    head = f"old was not found in {shown}"
    wanted = old.split("\n")
    if all(_NUMBERED.match(line) for line in wanted if line.strip()) and old.strip():
        return ToolError(f"{head}: it begins with line numbers, which are not part of the file", _exact(shown, None))
    lines = text.split("\n")
    at = _same_but_spaces(lines, wanted)
    if at is not None:
        span = f"lines {at + 1}-{at + len(wanted)}" if len(wanted) > 1 else f"line {at + 1}"
        shown_lines = _numbered(lines, range(at, at + len(wanted)))
        return ToolError(f"{head}; {span} differ in spaces only:\n{shown_lines}", _exact(shown, at))
    done = _line_with(text, new)
    if done is not None:
        return ToolError(f"{head}, but new is there already, at line {done}", "Go on: this change seems to be made.")
    near = _nearest(lines, wanted)
    if near:
        return ToolError(f"{head}; the nearest lines are:\n{_numbered(lines, near)}", _exact(shown, near[0]))
    alone = _lone_returns(text) if len(wanted) > 1 else ""
    return ToolError(f"{head}, and no line comes near it{alone}", f"Read {shown}, then edit with its exact text.")


def _exact(shown: str, index: int | None) -> str:
    """What to do next; `index` is of the line to look at first."""
    start = f" from line {max(index - 2, 1)}" if index is not None and index > 2 else ""
    return f"Read {shown}{start}, then edit with its exact text, without line numbers, as old."


def _line_with(text: str, new: str) -> int | None:
    """The line at which `new` stands in the text; None for a text too short to tell anything."""
    at = text.find(new) if len(new.strip()) >= _TELLING_CHARS else -1
    return None if at < 0 else text.count("\n", 0, at) + 1


def _lone_returns(text: str) -> str:
    count = text.count("\r")
    return f"; the file has {count} carriage returns alone, which end no line here" if count else ""


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
