"""Finding text that is not there letter by letter, as a model gets it slightly wrong, and what its replacement is then.

Four ways, tried in order: trailing blanks, typographic characters, indentation, and the line numbers that read shows.
The first way that finds anything decides: one place is an answer, several are none. Lines that `new` has in common
with `old`, at its start and end, keep the file's own text. All texts here have `\\n` endings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aerix_server.config.bounds import TOLERANT_PLACES
from aerix_server.tools.indentation import fit_shift
from aerix_server.tools.typographic import as_ascii, in_the_files_characters

_BLANKS = " \t"
_NUMBERED = re.compile(r" *\d+\t")


@dataclass(frozen=True)
class Near:
    """The one place that was meant: `length` characters from `start` are replaced by `new`. `told` says how it was
    found, for `matched by …`."""

    start: int
    length: int
    new: str
    told: str


@dataclass(frozen=True)
class Unclear:
    """Several places, each by where it starts; at most TOLERANT_PLACES of them. `told` as in Near."""

    starts: tuple[int, ...]
    told: str


Found = Near | Unclear | None


def find_near(text: str, old: str, new: str) -> Found:
    """Where `old` stands in `text` when small differences are passed over; None when nowhere."""
    for attempt in (_without_trailing_blanks, _with_ascii_twins, _with_other_indentation, _without_numbers):
        found = attempt(text, old, new)
        if found is not None:
            return found
    return None


def _without_trailing_blanks(text: str, old: str, new: str) -> Found:
    def fitted(_: list[str]) -> Callable[[list[str]], list[str] | None] | None:
        return list

    return _by_lines(text, old, new, _stripped_right, fitted, "ignoring trailing blanks")


def _with_other_indentation(text: str, old: str, new: str) -> Found:
    old_lines = old.removesuffix("\n").split("\n")
    new_lines = new.removesuffix("\n").split("\n")

    def fitted(lines: list[str]) -> Callable[[list[str]], list[str] | None] | None:
        return fit_shift(old_lines, lines, new_lines)

    return _by_lines(text, old, new, _stripped, fitted, "ignoring indentation; new was indented alike")


def _without_numbers(text: str, old: str, new: str) -> Found:
    bare = _bare(old)
    if bare is None:
        return None
    bare_new = _bare(new)
    if bare_new is None and any(map(_NUMBERED.match, new.split("\n"))):
        return None
    found = _without_trailing_blanks(text, bare, new if bare_new is None else bare_new)
    told = "leaving out the line numbers, which are not part of the file"
    match found:
        case Near():
            return Near(found.start, found.length, found.new, told)
        case Unclear():
            return Unclear(found.starts, told)
        case None:
            return None


def _bare(numbered: str) -> str | None:
    """The text without the numbers at the start of its lines; None when a line has none."""
    *lines, last = numbered.split("\n")
    every = lines if lines and not last else [*lines, last]
    if not all(_NUMBERED.match(line) for line in every):
        return None
    return "\n".join([*(_NUMBERED.sub("", line, count=1) for line in every), *([""] if every is lines else [])])


def _with_ascii_twins(text: str, old: str, new: str) -> Found:
    """One character for one: the only way that also finds a part of a line."""
    if text.isascii() and old.isascii():
        return None
    starts = tuple(_starts(as_ascii(text), as_ascii(old)))
    told = "taking typographic characters for their ASCII twins; new was written with the file's"
    if len(starts) != 1:
        return Unclear(starts, told) if starts else None
    start = starts[0]
    return Near(start, len(old), in_the_files_characters(text[start : start + len(old)], old, new), told)


def _by_lines(
    text: str,
    old: str,
    new: str,
    view: Callable[[str], str],
    fitted: Callable[[list[str]], Callable[[list[str]], list[str] | None] | None],
    told: str,
) -> Found:
    """Whole lines that are those of `old` in the `view` of a line. `fitted` gives, for lines of the file, what turns
    lines of `new` into theirs; None when the lines do not fit after all."""
    ended = old.endswith("\n")
    old_lines = old.removesuffix("\n").split("\n")
    if not any(map(view, old_lines)):
        return None
    lines = text.split("\n")
    places: list[int] = []
    for at in _line_starts([view(line) for line in lines], [view(line) for line in old_lines]):
        # A last line without its newline is not the line that `old` ends with one.
        ends_inside = not ended or at + len(old_lines) < len(lines)
        if ends_inside and fitted(lines[at : at + len(old_lines)]) is not None:
            places.append(at)
            if len(places) >= TOLERANT_PLACES:
                break
    if len(places) != 1:
        return Unclear(tuple(_positions(lines, places)), told) if places else None
    own = lines[places[0] : places[0] + len(old_lines)]
    turn = fitted(own)
    merged = _merged(own, old_lines, new.split("\n"), turn) if turn else None
    if merged is None:
        return None
    (start,) = _positions(lines, places)
    return Near(start, len("\n".join(own)) + ended, merged, told)


def _merged(
    own: list[str], old: list[str], new: list[str], turn: Callable[[list[str]], list[str] | None]
) -> str | None:
    """The lines of `new` turned into the file's, those that it shares with `old` at either end being the file's own.

    `new` may have an empty last line more than `old`: the end of the line before it."""
    trail = [""] if len(new) > 1 and new[-1] == "" else []
    body = new[: len(new) - len(trail)]
    most = min(len(old), len(body))
    head = next((at for at in range(most) if old[at] != body[at]), most)
    tail = next((at for at in range(most - head) if old[-1 - at] != body[-1 - at]), most - head)
    changed = turn(body[head : len(body) - tail])
    if changed is None:
        return None
    return "\n".join([*own[:head], *changed, *own[len(own) - tail :], *trail])


def _line_starts(lines: list[str], wanted: list[str]) -> Iterator[int]:
    """Indexes at which the lines `wanted` follow each other in `lines`."""
    joined = "\n" + "\n".join(lines) + "\n"
    line, last = 0, 0
    for start in _starts(joined, "\n" + "\n".join(wanted) + "\n", None):
        line += joined.count("\n", last, start)
        last = start
        yield line


def _starts(text: str, wanted: str, most: int | None = TOLERANT_PLACES) -> Iterator[int]:
    """Where `wanted` begins in `text`, also where it overlaps itself; at most `most` of them."""
    at, count = text.find(wanted), 0
    while at >= 0 and (most is None or count < most):
        yield at
        count += 1
        at = text.find(wanted, at + 1)


def _positions(lines: list[str], places: list[int]) -> Iterator[int]:
    """Where, in the text of `lines`, the lines with these indexes (in order) start."""
    position, last = 0, 0
    for place in places:
        position += sum(len(line) + 1 for line in lines[last:place])
        last = place
        yield position


def _stripped_right(line: str) -> str:
    return line.rstrip(_BLANKS)


def _stripped(line: str) -> str:
    return line.strip(_BLANKS)
