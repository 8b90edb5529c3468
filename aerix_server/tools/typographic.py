"""Typographic characters and their ASCII twins, one for one: quotes, dashes and spaces that look alike."""

from __future__ import annotations

_TWINS = {
    "'": "\u2018\u2019\u201a\u201b\u2032\u02bc",
    '"': "\u201c\u201d\u201e\u201f\u2033",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212",
    " ": "\u00a0\u2002\u2003\u2007\u2009\u202f",
}
_TO_ASCII = str.maketrans({other: plain for plain, others in _TWINS.items() for other in others})


def as_ascii(text: str) -> str:
    """`text`, of the same length, with each of these characters as its twin."""
    return text if text.isascii() else text.translate(_TO_ASCII)


def in_the_files_characters(own: str, old: str, new: str) -> str:
    """`new` as the file would write it. `own` is the file's text that stands for `old`, character for character.

    What `new` and `old` share at either end stays as the file has it. Between, a character is written as the file
    writes it wherever `old` has it; one that the file writes in two ways stays as it is in `new`.
    """
    most = min(len(old), len(new))
    head = next((at for at in range(most) if old[at] != new[at]), most)
    tail = next((at for at in range(most - head) if old[-1 - at] != new[-1 - at]), most - head)
    middle = new[head : len(new) - tail].translate(_habits(own, old))
    return own[:head] + middle + own[len(own) - tail :]


def _habits(own: str, old: str) -> dict[int, str]:
    """Characters of `old` that the file always writes otherwise, and how."""
    written: dict[str, set[str]] = {}
    for theirs, given in zip(own, old, strict=True):
        written.setdefault(given, set()).add(theirs)
    return {ord(given): next(iter(theirs)) for given, theirs in written.items() if len(theirs) == 1}
