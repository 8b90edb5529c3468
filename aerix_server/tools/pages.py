"""One page of a file's lines. The whole file is gone through, in pieces, so that the page can say how much there is."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from aerix_server.config.bounds import READ_LINE_CHARS, READ_PAGE_BYTES
from aerix_server.tools.text import DIGEST_BYTES, NotText, detect_encoding

_CHUNK = 1024 * 1024
_LINE_BYTES = READ_LINE_CHARS * 4
"""What is kept of a line: enough for the characters that are shown."""


@dataclass(frozen=True)
class Page:
    """`lines` from number `first`; the file has `total` lines. `bad_byte`: where it first is not UTF-8, or None."""

    lines: tuple[str, ...]
    first: int
    total: int
    size: int
    bad_byte: int | None
    digest: str


def read_page(file: BinaryIO, offset: int, limit: int, check: Callable[[], None]) -> Page:
    """Lines from `offset` (from 1), at most `limit` and READ_PAGE_BYTES of them.

    `check` is called for each piece and may raise to stop. Raises NotText for what is no text, and OSError.
    """
    content = hashlib.blake2b(digest_size=DIGEST_BYTES)
    collected = _Lines(offset, limit)
    decoder: _Decoder | None = None
    while piece := file.read(_CHUNK):
        check()
        content.update(piece)
        decoder = decoder or _Decoder(piece)
        collected.feed(decoder.feed(piece))
    if decoder is None:
        return Page((), offset, 0, 0, None, content.hexdigest())
    collected.feed(decoder.finish())
    collected.close()
    return Page(
        tuple(collected.kept), offset, collected.number - 1, decoder.size, decoder.bad_byte, content.hexdigest()
    )


class _Decoder:
    """Turns a file's bytes into UTF-8 without a mark, and finds the first byte that is not UTF-8."""

    def __init__(self, head: bytes) -> None:
        bom, self._encoding = detect_encoding(head)
        self._skip = len(bom)
        self._decoder = codecs.getincrementaldecoder(self._encoding)()
        self._open = 0
        self.size = 0
        self.bad_byte: int | None = None

    def feed(self, piece: bytes) -> bytes:
        body = piece[self._skip :]
        self.size += self._skip
        self._skip = 0
        return self._decode(body, last=False)

    def finish(self) -> bytes:
        return self._decode(b"", last=True)

    def _decode(self, body: bytes, last: bool) -> bytes:
        before = self.size - self._open
        self.size += len(body)
        text = ""
        if self.bad_byte is None:
            try:
                text = self._decoder.decode(body, last)
            except UnicodeDecodeError as error:
                self.bad_byte = before + error.start
            self._open = len(self._decoder.getstate()[0]) if self.bad_byte is None else 0
        if self._encoding == "utf-8":
            return _without_nul(body, self.size - len(body))
        if self.bad_byte is not None:
            raise NotText(f"not valid UTF-16 at byte {self.bad_byte}")
        return _without_nul(text.encode("utf-8"), before)


def _without_nul(body: bytes, start: int) -> bytes:
    at = body.find(b"\0")
    if at >= 0:
        raise NotText(f"binary (NUL near byte {start + at})")
    return body


class _Lines:
    """Keeps the wanted lines of a stream of UTF-8 and counts all of them."""

    def __init__(self, offset: int, limit: int) -> None:
        self._first, self._stop = offset, offset + limit
        self._room = READ_PAGE_BYTES
        self._line = bytearray()
        self._length = 0
        self.number = 1
        self.kept: list[str] = []

    def feed(self, piece: bytes) -> None:
        at = 0
        while not self._past() and (end := piece.find(b"\n", at)) >= 0:
            self._add(piece[at:end])
            self._end_line("\r")
            at = end + 1
        if self._past() and (lines := piece.count(b"\n", at)):
            self.number += lines
            self._line.clear()
            self._length = 0
            at = piece.rfind(b"\n") + 1
        self._add(piece[at:])

    def close(self) -> None:
        """A last line without its newline is one too."""
        if self._length:
            self._end_line("")

    def _past(self) -> bool:
        return self.number >= self._stop or self._room <= 0

    def _add(self, part: bytes) -> None:
        self._length += len(part)
        if self.number >= self._first:
            self._line += part[: max(_LINE_BYTES + 1 - len(self._line), 0)]

    def _end_line(self, ending: str) -> None:
        """`ending` is what goes with the newline when the line has it."""
        if self._first <= self.number and not self._past():
            shown = _shown(bytes(self._line), self._length, ending)
            self.kept.append(shown)
            self._room -= len(shown)
        self.number += 1
        self._line.clear()
        self._length = 0


def _shown(line: bytes, length: int, ending: str) -> str:
    text = line.decode("utf-8", "replace").removesuffix(ending)
    if len(text) <= READ_LINE_CHARS and len(line) == length:
        return text
    return f"{text[:READ_LINE_CHARS]}… [cut: the line has {length} bytes]"
