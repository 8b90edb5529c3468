"""What the tools take for text, and how a file's bytes and its text go into each other without loss.

UTF-8 with or without a byte-order mark and UTF-16 with one are text. Bytes that are not UTF-8 are carried as lone
surrogates and come back as the same bytes. Lines end at `\\n` and nowhere else; a `\\r` before it belongs to the end.
"""

from __future__ import annotations

import codecs
import hashlib
from dataclasses import dataclass
from typing import Literal

Encoding = Literal["utf-8", "utf-16-le", "utf-16-be"]

DIGEST_BYTES = 16
_MARKS: tuple[tuple[bytes, Encoding], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class NotText(Exception):
    """The bytes are no text; the message is a reason that goes after `is`."""


@dataclass(frozen=True)
class Text:
    """`text` is without the byte-order mark `bom`; `bad_byte` is where the bytes first are not UTF-8, or None."""

    text: str
    encoding: Encoding
    bom: bytes
    bad_byte: int | None = None


def detect_encoding(head: bytes) -> tuple[bytes, Encoding]:
    """The byte-order mark at the start of `head` (may be empty) and the encoding it tells."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return mark, encoding
    return b"", "utf-8"


def decode(data: bytes) -> Text:
    """The text of a file's bytes. Raises NotText for binary data and for broken UTF-16."""
    bom, encoding = detect_encoding(data)
    body = data[len(bom) :]
    if encoding != "utf-8":
        try:
            text = body.decode(encoding)
        except UnicodeDecodeError as error:
            raise NotText(f"not valid UTF-16 at byte {error.start + len(bom)}") from None
        return Text(_without_nul(text, "UTF-16 character"), encoding, bom)
    at = body.find(b"\0")
    if at >= 0:
        raise NotText(f"binary (NUL at byte {at + len(bom)}, {len(data)} bytes)")
    try:
        return Text(body.decode("utf-8"), encoding, bom)
    except UnicodeDecodeError as error:
        return Text(body.decode("utf-8", "surrogateescape"), encoding, bom, error.start + len(bom))


def _without_nul(text: str, unit: str) -> str:
    at = text.find("\0")
    if at >= 0:
        raise NotText(f"binary (NUL at {unit} {at})")
    return text


def encode(text: str, like: Text) -> bytes:
    """The bytes of `text` in the encoding, and with the mark, of the file it goes back to.

    Raises UnicodeEncodeError for a lone surrogate that stands for no byte.
    """
    errors = "surrogateescape" if like.encoding == "utf-8" else "strict"
    return like.bom + text.encode(like.encoding, errors)


def speakable(text: str) -> str:
    """`text` for the model: a byte that is not UTF-8 is shown as U+FFFD, which is never written back."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def digest(data: bytes) -> str:
    """A hash that tells whether a file is still what an agent saw."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def count_lines(text: str) -> int:
    """Lines as read numbers them: a last one without its newline counts."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def line_of(text: str, position: int) -> int:
    """The number (from 1) of the line that holds the character at `position`."""
    return text.count("\n", 0, position) + 1


def cut_window(line: str, at: int, width: int) -> str:
    """At most `width` characters of `line` around position `at`, with a mark on each side where it was cut."""
    if len(line) <= width:
        return line
    start = max(0, min(at - width // 2, len(line) - width))
    end = start + width
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")
