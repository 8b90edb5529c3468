"""Line endings: text is matched and written by the model with `\\n`, and put back with each line's own ending."""

from __future__ import annotations

import bisect
import difflib
import re
from dataclasses import dataclass

_ALIGN_LINES = 4000
"""Mixed files beyond this are aligned by position only."""


@dataclass(frozen=True)
class Plain:
    """`text` with every `\\r\\n` as `\\n`, and where in `text` each of those stood."""

    text: str
    carriages: tuple[int, ...]

    def original(self, position: int) -> int:
        """The place in the original text of a place in this one; never between `\\r` and `\\n`."""
        return position + bisect.bisect_left(self.carriages, position)


def plain(text: str) -> Plain:
    carriages = [found.start() - count for count, found in enumerate(re.finditer(r"\r\n", text))]
    return Plain(text.replace("\r\n", "\n"), tuple(carriages))


def neighbour_ending(text: str, start: int, end: int) -> str | None:
    """The ending that a new line between `start` and `end` of `text` takes: of its own line, else of the one before.

    None when `text` has no line ending at all.
    """
    at = text.find("\n", end)
    if at < 0:
        at = text.rfind("\n", 0, start)
    if at < 0:
        at = text.find("\n", start)
    if at < 0:
        return None
    return "\r\n" if text[:at].endswith("\r") else "\n"


def with_endings(old: str, new: str, ending: str | None) -> str:
    """`new` with the endings of `old`, the original text that it replaces: a kept line keeps its own, a new line takes
    its neighbour's, and `ending` where it has none. With no ending known at all, `new` stays as it is."""
    endings = re.findall(r"\r?\n", old)
    kinds = set(endings)
    if not kinds and ending is None:
        return new
    lines = new.replace("\r\n", "\n").split("\n")
    if len(kinds | {ending} - {None}) < 2:
        return (endings[0] if endings else ending or "\n").join(lines)
    before = old.replace("\r\n", "\n").split("\n")
    chosen = _align(before, endings, lines, endings[0] if endings else ending or "\n")
    return "".join(line + end for line, end in zip(lines, [*chosen, ""], strict=True))


def _align(before: list[str], endings: list[str], lines: list[str], default: str) -> list[str]:
    """An ending for each of `lines` but the last."""
    taken: list[str | None] = [None] * len(lines)
    for start, end, into in _pairs(before, lines):
        for offset in range(end - start):
            if start + offset < len(endings):
                taken[into + offset] = endings[start + offset]
    chosen: list[str] = []
    for ending in taken[:-1]:
        chosen.append(ending or (chosen[-1] if chosen else default))
    return chosen


def _pairs(before: list[str], lines: list[str]) -> list[tuple[int, int, int]]:
    """Runs of lines that go together: (start, end) of the old ones and the start of the new."""
    if len(before) > _ALIGN_LINES or len(lines) > _ALIGN_LINES:
        return [(0, min(len(before), len(lines)), 0)]
    runs = difflib.SequenceMatcher(None, before, lines, autojunk=False).get_opcodes()
    return [
        (old, min(old_end, old + new_end - new), new)
        for kind, old, old_end, new, new_end in runs
        if kind in ("equal", "replace")
    ]
