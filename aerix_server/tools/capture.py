"""What a command prints, kept within bounds: head and tail in memory, and a file for all of it once it is more."""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from aerix_server.config.bounds import BASH_CAPTURE_BYTES, SPOOL_BYTES

_HALF = BASH_CAPTURE_BYTES // 2


class Capture:
    """One stream. `feed` costs the same for each byte, however many came before."""

    def __init__(self, folder: Path, limit: int = SPOOL_BYTES) -> None:
        self._folder = folder
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self._file: BinaryIO | None = None
        self._written = 0
        self._broken = False
        self.total = 0
        self.path: Path | None = None

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        if self.total > BASH_CAPTURE_BYTES and self.path is None and not self._broken:
            self._open()
        self._write(data)
        room = max(_HALF - len(self._head), 0)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * _HALF:
            del self._tail[:-_HALF]

    @property
    def overflowed(self) -> bool:
        return self.total > BASH_CAPTURE_BYTES

    def text(self) -> str:
        """The stream for the model; when it overflowed, with a line for what is left out of its middle."""
        if not self.overflowed:
            return decode_output(bytes(self._head + self._tail))
        tail = self._tail[-_HALF:]
        left_out = self.total - len(self._head) - len(tail)
        head = decode_output(_without_open_character(bytes(self._head)))
        return f"{head}\n[{left_out} bytes left out]\n{decode_output(_without_continuation(bytes(tail)))}"

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.close()
            except OSError:
                self._give_up()

    def spill(self) -> None:
        """Put a stream that did not overflow into a file too, so that a longer one can follow it there."""
        self._open()
        self.close()

    def all_bytes(self) -> bytes:
        """What is in memory: all, for a stream that did not overflow."""
        return bytes(self._head + self._tail)

    def _give_up(self) -> None:
        """The disk is full or gone: a file that lacks a part is no record, and the command goes on without one."""
        self._broken = True
        file, self._file = self._file, None
        with contextlib.suppress(OSError):
            if file is not None:
                file.close()
        with contextlib.suppress(OSError):
            if self.path is not None:
                self.path.unlink()
        self.path = None

    def _open(self) -> None:
        """Start the file with what came so far."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._folder / f"output-{secrets.token_hex(8)}.txt"
            self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        except OSError:
            self._broken = True
            return
        self.path = path
        self._write(self.all_bytes())

    def _write(self, data: bytes) -> None:
        """Add to the file, up to the limit."""
        if self._file is None or self._written >= self._limit:
            return
        part = data[: self._limit - self._written]
        try:
            self._file.write(part)
            self._written += len(part)
            if self._written >= self._limit:
                self._file.write(f"\n[only the first {self._limit} bytes are kept]\n".encode())
                self.close()
        except OSError:
            self._give_up()


@dataclass(frozen=True)
class Printed:
    """Standard output, then standard error. `whole` is the file that holds all, where `text` does not."""

    text: str
    whole: Path | None


def join(out: Capture, err: Capture) -> Printed:
    """Both streams as one text, each ended by a newline, and as one file when one of them overflowed."""
    out.close()
    err.close()
    text = _ended(out.text()) + _ended(err.text())
    if not out.overflowed and not err.overflowed:
        return Printed(text, None)
    if not out.overflowed:
        out.spill()
    if out.path is None or (err.overflowed and err.path is None):
        return Printed(text, None)
    _append(out.path, err)
    return Printed(text, out.path)


def _append(path: Path, err: Capture) -> None:
    room = SPOOL_BYTES - path.stat().st_size
    with contextlib.suppress(OSError), path.open("ab") as file:
        if err.path is None:
            file.write(err.all_bytes()[: max(room, 0)])
            return
        with err.path.open("rb") as source:
            while room > 0 and (piece := source.read(min(room, 1024 * 1024))):
                file.write(piece)
                room -= len(piece)
        err.path.unlink()


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def decode_output(data: bytes) -> str:
    r"""Output as text: a byte that is not UTF-8, and NUL, as `\xNN`."""
    return data.decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def _without_open_character(data: bytes) -> bytes:
    """Without a character of several bytes that is cut off at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data[:-back] if length > back else data
    return data


def _without_continuation(data: bytes) -> bytes:
    """Without the rest of a character that began before."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
