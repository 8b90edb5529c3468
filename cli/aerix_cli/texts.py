"""Text on its way to a terminal: nothing that a model or a tool wrote may steer it. Pure."""

from __future__ import annotations

import re
import unicodedata

# C0 and C1 controls, DEL, and the characters that reorder what is read. Line ends and tabs are left by `visible`.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)"
)
_NOT_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with every control character but line ends and tabs written as an escape."""
    return _UNSAFE.sub(lambda match: _escape(match[0]), text)


def one_line(text: str, limit: int = 160) -> str:
    """As `visible`, on one line of at most `limit` characters."""
    line = visible(text).replace("\r\n", "\\n").replace("\n", "\\n").replace("\t", "\\t")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def json_safe(text: str) -> str:
    """JSON text with the controls that JSON itself allows raw, and lone surrogates, written as escapes."""
    return _NOT_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def width(text: str) -> int:
    """Columns on a terminal."""
    return sum(_columns(character) for character in text)


def cut_to_width(text: str, columns: int) -> str:
    """The longest start of the text that fits, with an ellipsis where something is missing."""
    if width(text) <= columns:
        return text
    kept, used = "", 0
    for character in text:
        used += _columns(character)
        if used > columns - 1:
            break
        kept += character
    return kept + "…" if columns > 0 else ""


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _escape(character: str) -> str:
    code = ord(character)
    short = {0x1B: "\\e", 0x0D: "\\r", 0x07: "\\a", 0x08: "\\b"}.get(code)
    return short or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
