"""Replacing a part of a file's text: taken literally, found with either line ending, put back with the file's own."""

from __future__ import annotations

from dataclasses import dataclass

from aerix_server.tools.base import ToolError
from aerix_server.tools.endings import Plain, neighbour_ending, plain, with_endings
from aerix_server.tools.nearest import not_found
from aerix_server.tools.tolerant import Near, Unclear, find_near

_LINES_NAMED = 20


@dataclass(frozen=True)
class Replaced:
    """The whole new text, and the lines of the old one where the matches began. `told` says how a match that is not
    exact was found; empty for exact ones. `inside`: the lines of matches inside longer words, where others are not."""

    text: str
    lines: tuple[int, ...]
    told: str = ""
    inside: tuple[int, ...] = ()


def replace(text: str, old: str, new: str, replace_all: bool, shown: str) -> Replaced:
    """`text` with `old` replaced by `new`, taken literally. `\\n` in `old` matches `\\r\\n` too.

    Without `replace_all`, an `old` that is not there is looked for with tolerance. Raises ToolError when it is not
    found at all, or more than once without `replace_all`.
    """
    mark = "\ufeff"
    view = plain(text)
    if old.startswith(mark) and not text.startswith(mark):
        old, new = old.removeprefix(mark), new.removeprefix(mark)
    wanted = old.replace("\r\n", "\n")
    starts = _find_all(view.text, wanted)
    if not starts:
        return _replace_near(text, view, wanted, new.replace("\r\n", "\n"), replace_all, shown)
    lines = tuple(_line_numbers(view.text, starts))
    if len(starts) > 1 and not replace_all:
        raise ToolError(
            f"old was found {len(starts)} times in {shown} ({at_lines(lines)})",
            "Give a longer old that holds the lines around the one you mean, or set replace_all to change them all.",
        )
    if not replace_all and _stands_already(view.text, starts[0], wanted, new.replace("\r\n", "\n")):
        raise ToolError(
            f"new stands in {shown} already, at {at_lines(lines)}; done again, the edit would repeat it",
            "This change is made: go on with what is next.",
        )
    parts = _line_numbers(view.text, [start for start in starts if _in_longer_word(view.text, start, len(wanted))])
    inside = tuple(parts) if len(parts) < len(starts) else ()
    return Replaced(_spliced(text, view, starts, len(wanted), new), lines, inside=inside)


def _in_longer_word(text: str, start: int, length: int) -> bool:
    """Whether what is replaced is a part of a longer name or number, such as `parse` in `parse_all`."""
    end = start + length
    before = start > 0 and _is_word(text[start - 1]) and _is_word(text[start])
    return before or (end < len(text) and _is_word(text[end]) and _is_word(text[end - 1]))


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _stands_already(text: str, start: int, old: str, new: str) -> bool:
    """Whether `old` at `start` is the part of a `new` that is there: what an edit that adds to `old` leaves."""
    at = new.find(old) if new != old else -1
    while at >= 0:
        if start >= at and text.startswith(new, start - at):
            return True
        at = new.find(old, at + 1)
    return False


def _replace_near(text: str, view: Plain, old: str, new: str, replace_all: bool, shown: str) -> Replaced:
    near = None if replace_all else find_near(view.text, old, new)
    match near:
        case None:
            raise not_found(view.text, old, new, shown)
        case Unclear():
            lines = tuple(_line_numbers(view.text, list(near.starts)))
            raise ToolError(
                f"old was not found in {shown} as it is; {near.told.partition(';')[0]}, it was found "
                f"{len(near.starts)} times ({at_lines(lines)})",
                f"Read {shown} around the place you mean, and give more of its exact lines as old.",
            )
        case Near():
            lines = tuple(_line_numbers(view.text, [near.start]))
            return Replaced(_spliced(text, view, [near.start], near.length, near.new), lines, near.told)


def _find_all(text: str, wanted: str) -> list[int]:
    """Where `wanted` begins, left to right, without overlaps."""
    starts: list[int] = []
    at = text.find(wanted) if wanted else -1
    while at >= 0:
        starts.append(at)
        at = text.find(wanted, at + len(wanted))
    return starts


def _line_numbers(text: str, starts: list[int]) -> list[int]:
    numbers: list[int] = []
    line, last = 1, 0
    for start in starts:
        line += text.count("\n", last, start)
        last = start
        numbers.append(line)
    return numbers


def _spliced(text: str, view: Plain, starts: list[int], length: int, new: str) -> str:
    parts: list[str] = []
    last = 0
    # Only in a file of mixed endings does it matter where a new line stands.
    everywhere = new if "\n" not in new else _uniform(view, new)
    for start in starts:
        begin, end = view.original(start), view.original(start + length)
        parts.append(text[last:begin])
        parts.append(_ended(text, begin, end, new) if everywhere is None else everywhere)
        last = end
    return "".join([*parts, text[last:]])


def _uniform(view: Plain, new: str) -> str | None:
    """`new` with the one ending that all lines have; None in a file of mixed endings."""
    lines = view.text.count("\n")
    if lines and len(view.carriages) not in (0, lines):
        return None
    return with_endings("", new, ("\r\n" if view.carriages else "\n") if lines else None)


def _ended(text: str, begin: int, end: int, new: str) -> str:
    return with_endings(text[begin:end], new, neighbour_ending(text, begin, end))


def at_lines(lines: tuple[int, ...]) -> str:
    """`line 3`, or `lines 3, 8 and 12 more`."""
    numbers = list(dict.fromkeys(lines))
    named = ", ".join(str(line) for line in numbers[:_LINES_NAMED])
    more = f" and {len(numbers) - _LINES_NAMED} more" if len(numbers) > _LINES_NAMED else ""
    return ("line " if len(numbers) == 1 else "lines ") + named + more
