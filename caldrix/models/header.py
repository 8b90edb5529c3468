"""What a GGUF file's header says: its keys and its tensors, without the weights and without the vocabulary's texts."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from caldrix.models.gguf_file import LONG, MAGIC, WIDTHS, WORD, _Broken, _Reader

MOST_NUMBERS: Final = 4096
"""Arrays of numbers up to this length are read: those by layer, not those by token."""
_FORMS: Final = {
    GGUFValueType.UINT8: struct.Struct("<B"),
    GGUFValueType.INT8: struct.Struct("<b"),
    GGUFValueType.BOOL: struct.Struct("<?"),
    GGUFValueType.UINT16: struct.Struct("<H"),
    GGUFValueType.INT16: struct.Struct("<h"),
    GGUFValueType.UINT32: WORD,
    GGUFValueType.INT32: struct.Struct("<i"),
    GGUFValueType.FLOAT32: struct.Struct("<f"),
    GGUFValueType.UINT64: LONG,
    GGUFValueType.INT64: struct.Struct("<q"),
    GGUFValueType.FLOAT64: struct.Struct("<d"),
}

Number = int | float | bool
Value = Number | bytes | list[Number]


@dataclass(frozen=True)
class Tensor:
    """`dimensions` in GGUF's order, the contiguous one first; `size` in bytes, 0 for a type unknown here."""

    name: str
    dimensions: tuple[int, ...]
    kind: int
    size: int


@dataclass(frozen=True)
class Header:
    """`values` leaves out arrays of texts and long arrays; `lengths` has the length of every array."""

    values: dict[str, Value]
    lengths: dict[str, int]
    tensors: tuple[Tensor, ...]


def read_header(path: Path) -> Header:
    """Raises OSError, and ValueError with a reason where the header breaks the format."""
    with path.open("rb") as file:
        reader = _Reader(file, path.stat().st_size)
        try:
            return _header(reader)
        except _Broken as error:
            raise ValueError(str(error)) from error


def _header(reader: _Reader) -> Header:
    if reader.magic != MAGIC or reader.number(WORD) not in (2, 3):
        raise ValueError("it is no GGUF file of version 2 or 3")
    tensors, pairs = reader.number(LONG), reader.number(LONG)
    values: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    for _ in range(pairs):
        key = reader.name().decode("utf-8", "replace")
        kind = reader.number(WORD)
        if kind == GGUFValueType.ARRAY:
            element, lengths[key] = reader.number(WORD), reader.number(LONG)
            if (numbers := _array(reader, element, lengths[key])) is not None:
                values[key] = numbers
        else:
            values[key] = _text(reader) if kind == GGUFValueType.STRING else _number(reader, kind)
    return Header(values, lengths, tuple(_tensors(reader, tensors)))


def _array(reader: _Reader, element: int, length: int) -> list[Number] | None:
    if element == GGUFValueType.STRING:
        reader.skip_texts(length)
    elif length > MOST_NUMBERS:
        reader.skip(length * WIDTHS[_kind(element)])
    else:
        return [_number(reader, element) for _ in range(length)]
    return None


def _text(reader: _Reader) -> bytes:
    start = reader.position
    reader.skip_texts(1)
    return bytes(reader._data[start + LONG.size : reader.position])


def _number(reader: _Reader, kind: int) -> Number:
    form = _FORMS[_kind(kind)]
    start = reader.position
    reader.skip(form.size)
    value: Number = form.unpack_from(reader._data, start)[0]
    return value


def _kind(kind: int) -> GGUFValueType:
    known = next((each for each in _FORMS if each == kind), None)
    if known is None:
        raise ValueError(f"it holds a value of the unknown type {kind}")
    return known


def _tensors(reader: _Reader, count: int) -> Iterator[Tensor]:
    for _ in range(count):
        name = reader.name().decode("utf-8", "replace")
        dimensions = tuple(reader.number(LONG) for _ in range(reader.number(WORD)))
        kind, _offset = reader.number(WORD), reader.number(LONG)
        yield Tensor(name, dimensions, kind, _size(dimensions, kind))


def _size(dimensions: tuple[int, ...], kind: int) -> int:
    try:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (KeyError, ValueError):
        return 0
    return math.prod(dimensions) // block * block_bytes
