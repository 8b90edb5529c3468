"""LSP base protocol: bytes in, message bodies out. Pure; pygls's own reader waits for ever on `content-length`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MESSAGE_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one message; a longer one is skipped and answered as an error."""
HEADER_LIMIT: Final = 64 * 1024
"""Bytes of one header line; noise without a line end is thrown away beyond it."""

_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*(\d{1,15})[ \t]*", re.IGNORECASE)


@dataclass(frozen=True)
class TooLong:
    """A message over the limit came and was skipped."""

    length: int


def frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


class Splitter:
    """Cuts a byte stream into message bodies.

    A header block without a readable length is skipped: the next block that has one is where the stream goes on.
    """

    def __init__(self, limit: int = MESSAGE_LIMIT) -> None:
        self._limit = limit
        self._data = bytearray()
        self._length: int | None = None  # of the header block being read
        self._in_body = False
        self._skip = 0  # bytes of an over-long body still to come

    def feed(self, data: bytes) -> Iterator[bytes | TooLong]:
        """The bodies that `data` completes, in order."""
        self._data += data
        while True:
            self._drop_skipped()
            if self._in_body:
                body = self._body()
                if body is None:
                    return
                yield body
                continue
            line = self._line()
            if line is None:
                return
            if too_long := self._header(line):
                yield too_long

    def _drop_skipped(self) -> None:
        gone = min(self._skip, len(self._data))
        del self._data[:gone]
        self._skip -= gone

    def _body(self) -> bytes | None:
        length = self._length or 0
        if len(self._data) < length:
            return None
        body = bytes(self._data[:length])
        del self._data[:length]
        self._length, self._in_body = None, False
        return body

    def _line(self) -> bytes | None:
        end = self._data.find(b"\n")
        if end < 0:
            if len(self._data) > HEADER_LIMIT:
                self._data.clear()
            return None
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        return line.removesuffix(b"\r")

    def _header(self, line: bytes) -> TooLong | None:
        if match := _LENGTH.fullmatch(line):
            self._length = int(match[1])
        elif not line and self._length is not None:
            if self._length > self._limit:
                self._skip, length, self._length = self._length, self._length, None
                return TooLong(length)
            self._in_body = True
        return None
