"""Byte streams: frames of messages, and what is made of a valid stream. Pure, by a seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import cbor2

from benchmarks.fuzz.messages import Payload, mutated, requests
from caldrix.protocol.frames import HEADER, Format

_LENGTHS: Final = (0, 1, 3, 255, 2**16, 16 << 20, (16 << 20) + 1, 2**31, 2**32 - 1)


def framed(body: bytes) -> bytes:
    return HEADER.pack(len(body)) + body


def body_of(message: Payload, fmt: Format) -> bytes:
    """As any client would write it; JSON's writer is lenient, so that NaN and lone surrogates are sent, too."""
    return cbor2.dumps(message) if fmt == "cbor" else json.dumps(message).encode()


def with_doubled_key(random: Random, message: Payload, fmt: Format) -> bytes:
    """The body with one of its pairs written twice."""
    pairs = [*message.items(), random.choice(list(message.items()))]
    if fmt == "json":
        return (
            b"{"
            + b",".join(json.dumps(key).encode() + b":" + json.dumps(value).encode() for key, value in pairs)
            + b"}"
        )
    assert len(pairs) < 24
    return bytes([0xA0 + len(pairs)]) + b"".join(cbor2.dumps(key) + cbor2.dumps(value) for key, value in pairs)


def hello(name: str) -> Payload:
    return {"type": "Hello", "id": 0, "version": 2, "client": {"name": "fuzz", "version": "1"}, "client_id": name}


def conversation(random: Random, name: str, fmt: Format) -> bytes:
    """A valid stream: the greeting and some requests, on a context that nobody made."""
    chosen = random.sample(requests(random, "x0"), 4)
    messages = [hello(name), *({**message, "id": place + 1} for place, message in enumerate(chosen))]
    return b"".join(framed(body_of(message, fmt)) for message in messages)


def spoiled(random: Random, stream: bytes, other: bytes) -> bytes:
    """`stream` after one to four changes of its bytes; `other` is one to splice with."""
    data = bytearray(stream)
    for _ in range(random.choice((1, 1, 2, 4))):
        random.choice(_SPOILERS)(random, data, other)
    return bytes(data)


def spoiled_message(random: Random, message: Payload, fmt: Format) -> bytes:
    """One frame whose body is not quite what the message would be."""
    if random.random() < 0.3:
        return framed(with_doubled_key(random, message, fmt))
    data = bytearray(body_of(mutated(random, message) if random.random() < 0.5 else message, fmt))
    random.choice((_flip, _overwrite, _cut, _insert))(random, data, b"")
    return framed(bytes(data) or b"\0")


def _place(random: Random, data: Sequence[int]) -> int:
    return random.randrange(len(data)) if data else 0


def _flip(random: Random, data: bytearray, other: bytes) -> None:
    for _ in range(random.choice((1, 1, 3, 20)) if data else 0):
        data[_place(random, data)] ^= 1 << random.randrange(8)


def _overwrite(random: Random, data: bytearray, other: bytes) -> None:
    at = _place(random, data)
    data[at : at + random.choice((1, 4, 9))] = random.choice(
        (b"\xff" * 9, b"\0" * 4, b"\x81" * 80, b"{", b'"', b"\x9f", b"\xd8\x1c")
    )


def _cut(random: Random, data: bytearray, other: bytes) -> None:
    del data[_place(random, data) :]


def _insert(random: Random, data: bytearray, other: bytes) -> None:
    at = _place(random, data)
    data[at:at] = random.randbytes(random.choice((1, 2, 40, 3000)))


def _remove(random: Random, data: bytearray, other: bytes) -> None:
    at = _place(random, data)
    del data[at : at + random.choice((1, 4, 100))]


def _splice(random: Random, data: bytearray, other: bytes) -> None:
    at = _place(random, data)
    data[at:] = other[_place(random, other) :]


def _again(random: Random, data: bytearray, other: bytes) -> None:
    at = _place(random, data)
    piece = bytes(data[at : at + 200])
    data[at:at] = piece * random.choice((1, 5))


def _lie(random: Random, data: bytearray, other: bytes) -> None:
    """Another length in the header of one of the frames."""
    at, headers = 0, []
    while at + HEADER.size <= len(data):
        headers.append(at)
        at += HEADER.size + HEADER.unpack_from(data, at)[0]
    if headers:
        at = random.choice(headers)
        true = HEADER.unpack_from(data, at)[0]
        HEADER.pack_into(data, at, random.choice((*_LENGTHS, max(0, true - 1), min(true + 1, 2**32 - 1))))


_Spoiler = Callable[[Random, bytearray, bytes], Any]
_SPOILERS: Final[tuple[_Spoiler, ...]] = (_flip, _flip, _overwrite, _cut, _insert, _remove, _splice, _again, _lie, _lie)
