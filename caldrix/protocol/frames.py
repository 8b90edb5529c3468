"""Framing: a 4-byte big-endian length, then one map as CBOR (RFC 8949) or JSON. Bytes in, values out; no socket.

The first payload byte of a connection decides its format: `{` is JSON, anything else is CBOR.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, Literal, NoReturn

import cbor2

from caldrix.protocol.errors import BadFrame

Format = Literal["cbor", "json"]
Payload = dict[str, Any]

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
MAX_DEPTH: Final = 64
HEADER: Final = struct.Struct(">I")

# A string that is never closed is taken to the end at once, so that the scan stays linear on hostile input.
_JSON_STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


def detect(body: bytes) -> Format:
    """The format of a connection whose first payload is `body`."""
    return "json" if body[:1] == b"{" else "cbor"


def encode(message: Payload, fmt: Format) -> bytes:
    """One whole frame. Raises BadFrame when the message is larger than MAX_FRAME_BYTES."""
    body = cbor2.dumps(message) if fmt == "cbor" else json.dumps(message, ensure_ascii=True).encode("ascii")
    if len(body) > MAX_FRAME_BYTES:
        raise BadFrame(f"a message of {len(body)} bytes does not fit a frame of {MAX_FRAME_BYTES}")
    return HEADER.pack(len(body)) + body


def check_length(length: int) -> int:
    """The announced length, or BadFrame; called before a byte of the payload is read or allocated."""
    if length == 0:
        raise BadFrame("a frame of length 0 holds no message")
    if length > MAX_FRAME_BYTES:
        raise BadFrame(f"a frame of {length} bytes exceeds the limit of {MAX_FRAME_BYTES}")
    return length


def decode(body: bytes, fmt: Format) -> Payload:
    """The one map that `body` holds. Raises BadFrame on anything else, with what was wrong."""
    value = _decode_cbor(body) if fmt == "cbor" else _decode_json(body)
    if not isinstance(value, dict):
        raise BadFrame(f"the payload is a {type(value).__name__}, not a map")
    if not all(isinstance(key, str) for key in value):
        raise BadFrame("a key of the payload is not a text string")
    return value


def _decode_cbor(body: bytes) -> object:
    stream = io.BytesIO(body)
    decoder = cbor2.CBORDecoder(
        stream,
        max_depth=MAX_DEPTH,
        allow_duplicate_keys=False,
        strict_hashable_types=True,
        semantic_decoders=_NO_TAGS,
        tag_hook=_refuse_tag,
    )
    try:
        value: object = decoder.decode()
    except (cbor2.CBORError, ValueError, OverflowError, RecursionError) as error:
        raise BadFrame(f"not CBOR: {error}") from error
    if stream.tell() != len(body):
        raise BadFrame(f"{len(body) - stream.tell()} bytes follow the message in its frame")
    return value


def _refuse_tag(*_: object) -> NoReturn:
    """A tag makes of plain data what no message holds: shared and circular values, dates, patterns, huge numbers."""
    raise ValueError("a tag, which no message holds")


_NO_TAGS: Final = defaultdict[int, Callable[..., NoReturn]](lambda: _refuse_tag)


def _decode_json(body: bytes) -> object:
    depth = deepest = 0
    for match in _JSON_STRUCTURE.finditer(body):
        mark = match[0]
        if mark in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif mark in (b"]", b"}"):
            depth -= 1
    if deepest > MAX_DEPTH:
        raise BadFrame(f"not JSON we accept: nested deeper than {MAX_DEPTH}")
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"not JSON: {error}") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class Framer:
    """Splits a byte stream into payloads: `feed` what arrived, then take `next_body()` until it gives None.

    Decoding is the caller's step (`decode(body, framer.format)`): a large body can be decoded off the event loop.
    """

    def __init__(self, fmt: Format | None = None) -> None:
        self._buffer = bytearray()
        self.format: Format = fmt or "cbor"
        self._detected = fmt is not None

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_body(self) -> bytes | None:
        """The next whole payload, or None while it is incomplete. Raises BadFrame on a forbidden length."""
        if len(self._buffer) < HEADER.size:
            return None
        length = check_length(HEADER.unpack_from(self._buffer)[0])
        end = HEADER.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(memoryview(self._buffer)[HEADER.size : end])
        del self._buffer[:end]
        if not self._detected:
            self.format, self._detected = detect(body), True
        return body

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame, in bytes."""
        return len(self._buffer)
