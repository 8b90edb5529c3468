"""The one shift of indentation by which some lines differ from others, and its use on further lines.

A shift adds the same blanks to each line, takes the same away, or turns spaces into tabs (or tabs into spaces) of one
width with a constant number more or less. Blank lines have no indentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

_BLANKS = " \t"
_WIDTHS = (4, 2, 8, 3)
"""Of a tab in spaces, the likeliest first."""

Shift = Callable[[str], str | None]
"""An indentation → the shifted one; None where the shift says nothing of it."""


def fit_shift(
    given: Sequence[str], own: Sequence[str], further: Sequence[str]
) -> Callable[[list[str]], list[str] | None] | None:
    """What shifts lines as the lines `given` must be shifted to be indented like `own`, line by line.

    None when no one shift fits. Of several that fit, one is taken that can shift the lines `further` too.
    """
    pairs = [(_indent(a), _indent(b)) for a, b in zip(given, own, strict=True) if a.strip(_BLANKS)]
    fitting = [shift for shift in _shifts(pairs) if all(shift(a) == b for a, b in pairs)]
    if not fitting:
        return None
    chosen = next((shift for shift in fitting if _shifted(further, shift) is not None), fitting[0])
    return lambda lines: _shifted(lines, chosen)


def _shifts(pairs: list[tuple[str, str]]) -> Iterator[Shift]:
    """The shifts that the first pair allows."""
    if not pairs:
        return
    given, own = pairs[0]
    if own.endswith(given):
        yield _adds(own[: len(own) - len(given)])
    if given.endswith(own):
        yield _takes(given[: len(given) - len(own)])
    if not given.strip(" ") and not own.strip("\t"):
        widths = [width for width in _WIDTHS if len(given) % width == 0]
        # A width that needs nothing more or less is the one that was meant.
        plain = [width for width in widths if len(given) // width == len(own)]
        yield from (_into_tabs(width, len(own) - len(given) // width) for width in plain or widths)
    if not given.strip("\t") and not own.strip(" "):
        widths = [width for width in _WIDTHS if len(given) * width == len(own)]
        yield from (_into_spaces(width, len(own) - len(given) * width) for width in widths or _WIDTHS)


def _adds(blanks: str) -> Shift:
    return lambda indent: blanks + indent


def _takes(blanks: str) -> Shift:
    return lambda indent: indent.removeprefix(blanks) if indent.startswith(blanks) else None


def _into_tabs(width: int, more: int) -> Shift:
    def shift(indent: str) -> str | None:
        count = len(indent) // width + more
        return None if indent.strip(" ") or len(indent) % width or count < 0 else "\t" * count

    return shift


def _into_spaces(width: int, more: int) -> Shift:
    def shift(indent: str) -> str | None:
        count = len(indent) * width + more
        return None if indent.strip("\t") or count < 0 else " " * count

    return shift


def _shifted(lines: Sequence[str], shift: Shift) -> list[str] | None:
    """The lines, each with its indentation shifted; None when one of them cannot be."""
    shifted: list[str] = []
    for line in lines:
        if not line.strip(_BLANKS):
            shifted.append(line)
            continue
        indent = _indent(line)
        moved = shift(indent)
        if moved is None:
            return None
        shifted.append(moved + line[len(indent) :])
    return shifted


def _indent(line: str) -> str:
    return "".join(takewhile(_BLANKS.__contains__, line))
