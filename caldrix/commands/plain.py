"""Model text on a terminal. Pure."""

from __future__ import annotations

import unicodedata

KEPT = "\n\t"


def visible(text: str) -> str:
    """`text` with its control characters shown as escapes, so that none of them steers the terminal."""
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character in KEPT or unicodedata.category(character) != "Cc":
        return character
    return f"\\x{ord(character):02x}"
