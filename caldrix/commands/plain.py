"""Text on a terminal that may be of any width, of any ability, or no terminal at all."""

from __future__ import annotations

import os
import unicodedata
from typing import IO

KEPT = "\n\t"


def visible(text: str) -> str:
    """`text` with its control characters shown as escapes, so that none of them steers the terminal. Pure."""
    return "".join(_visible(character) for character in text)


def takes_escapes(stream: IO[str]) -> bool:
    """Whether colours and cursor movements may be written: a terminal, unless NO_COLOR or TERM=dumb asks for none."""
    try:
        terminal = stream.isatty()
    except ValueError:  # closed
        return False
    return terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") not in ("dumb", "")


def _visible(character: str) -> str:
    if character in KEPT or unicodedata.category(character) != "Cc":
        return character
    return f"\\x{ord(character):02x}"
