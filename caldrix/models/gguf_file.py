"""Whether a GGUF file is whole, by its header: the tensor table says how long the file must be.

The weights are not read. The package `gguf` could read the header, too, but makes an array of every token of the
vocabulary, which takes seconds.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import BinaryIO, Final

from gguf.constants import GGML_QUANT_SIZES, GGUF_DEFAULT_ALIGNMENT, GGMLQuantizationType, GGUFValueType

from caldrix.protocol.errors import Refused

MAGIC: Final = b"GGUF"
ALIGNMENT_KEY: Final = b"general.alignment"
MOST_DIMENSIONS: Final = 8
LONGEST_NAME: Final = 1 << 16
LONGEST_HEADER: Final = 1 << 28
READ_BYTES: Final = 1 << 22
WORD: Final = struct.Struct("<I")
LONG: Final = struct.Struct("<Q")
WIDTHS: Final = {
    GGUFValueType.UINT8: 1,
    GGUFValueType.INT8: 1,
    GGUFValueType.BOOL: 1,
    GGUFValueType.UINT16: 2,
    GGUFValueType.INT16: 2,
    GGUFValueType.UINT32: 4,
    GGUFValueType.INT32: 4,
    GGUFValueType.FLOAT32: 4,
    GGUFValueType.UINT64: 8,
    GGUFValueType.INT64: 8,
    GGUFValueType.FLOAT64: 8,
}


class _Broken(Exception):
    """The header breaks the format's rules; the message says how."""


def check_gguf(path: Path, name: str | None = None) -> None:
    """Raises Refused("model_refused") for a file that cannot be read, is no GGUF, or ends before its last tensor.

    `name` is what the sentence calls it, where that is not its path.
    """
    called = name or str(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            needed = _needed_bytes(file, size, called)
    except OSError as error:
        raise Refused("model_refused", f"{called} cannot be read: {error.strerror}") from error
    except _Broken as error:
        raise Refused("model_refused", f"{called} is not a sound GGUF file: {error}") from error
    if size < needed:
        raise Refused(
            "model_refused",
            f"{called} is cut off: its tensor table needs {needed} bytes and it has {size}; fetch it again",
            {"needed_bytes": needed, "size_bytes": size},
        )


def _needed_bytes(file: BinaryIO, size: int, called: str) -> int:
    """The length that the tensor table asks for; tensors of types unknown here count with their offset only."""
    reader = _Reader(file, size)
    if reader.magic != MAGIC:
        raise Refused("model_refused", f"{called} is not a GGUF file (it begins with {reader.magic!r})")
    version = reader.number(WORD)
    if version not in (2, 3):
        raise _Broken(f"it is of version {version}; versions 2 and 3 can be read")
    tensors, pairs = reader.number(LONG), reader.number(LONG)
    alignment = _skip_metadata(reader, pairs)
    end = max((_tensor_end(reader) for _ in range(tensors)), default=0)
    start = reader.position
    return (start + -start % alignment + end) if tensors else start


def _skip_metadata(reader: _Reader, pairs: int) -> int:
    """Gives the alignment of the tensors' data."""
    alignment = GGUF_DEFAULT_ALIGNMENT
    for _ in range(pairs):
        key = reader.name()
        kind = reader.number(WORD)
        if key == ALIGNMENT_KEY and kind == GGUFValueType.UINT32:
            alignment = reader.number(WORD)
            if alignment < 1:
                raise _Broken(f"its alignment is {alignment}")
        else:
            _skip_value(reader, kind)
    return alignment


def _skip_value(reader: _Reader, kind: int) -> None:
    if kind == GGUFValueType.STRING:
        reader.skip_texts(1)
    elif kind == GGUFValueType.ARRAY:
        element, count = reader.number(WORD), reader.number(LONG)
        if element == GGUFValueType.STRING:
            reader.skip_texts(count)
        else:
            reader.skip(count * _width(element))
    else:
        reader.skip(_width(kind))


def _width(kind: int) -> int:
    try:
        return WIDTHS[GGUFValueType(kind)]
    except (KeyError, ValueError) as error:
        raise _Broken(f"it holds a value of the unknown type {kind}") from error


def _tensor_end(reader: _Reader) -> int:
    """Where a tensor ends, counted from the start of the tensors' data."""
    reader.name()
    dimensions = reader.number(WORD)
    if dimensions > MOST_DIMENSIONS:
        raise _Broken(f"a tensor has {dimensions} dimensions")
    elements = math.prod(reader.number(LONG) for _ in range(dimensions))
    kind, offset = reader.number(WORD), reader.number(LONG)
    try:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (KeyError, ValueError):
        return offset
    return offset + elements // block * block_bytes


class _Reader:
    """Numbers and names of a header, in order; never beyond the end of the file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._data = bytearray(file.read(len(MAGIC)))
        self.position = len(self._data)

    @property
    def magic(self) -> bytes:
        return bytes(self._data[: len(MAGIC)])

    def number(self, form: struct.Struct) -> int:
        start = self.position
        self.skip(form.size)
        return int(form.unpack_from(self._data, start)[0])

    def name(self) -> bytes:
        length = self.number(LONG)
        if length > LONGEST_NAME:
            raise _Broken(f"a name in it is {length} bytes long")
        self.skip(length)
        return bytes(self._data[self.position - length : self.position])

    def skip(self, length: int) -> None:
        self.position += length
        self._have(self.position)

    def skip_texts(self, count: int) -> None:
        """A vocabulary has hundreds of thousands of them, so this loop is short."""
        data, position, width, length_at = self._data, self.position, LONG.size, LONG.unpack_from
        for _ in range(count):
            if position + width > len(data):
                self._have(position + width)
            position += width + length_at(data, position)[0]
        self.position = position
        self._have(position)

    def _have(self, end: int) -> None:
        """Read on until the header's bytes up to `end` are here."""
        if end > self._size:
            raise _Broken(
                f"its header alone needs more than {self._size} bytes, which is all it has; if it was fetched, "
                "fetch it again"
            )
        if end > LONGEST_HEADER:
            raise _Broken(f"its header is longer than {LONGEST_HEADER} bytes")
        while len(self._data) < end:
            more = self._file.read(READ_BYTES)
            if not more:
                raise _Broken("it became shorter while it was read")
            self._data += more
