"""Frames: golden bytes, the limits, and any cut of the stream giving the same messages."""

from __future__ import annotations

import json
import struct
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caldrix.protocol.errors import BadFrame
from caldrix.protocol.frames import MAX_DEPTH, MAX_FRAME_BYTES, Format, Framer, decode, encode

GOLDEN: list[tuple[dict[str, Any], Format, bytes]] = [
    ({"type": "Ok", "id": 1}, "cbor", bytes.fromhex("0000000d a2 6474797065 624f6b 626964 01")),
    ({"type": "Ok", "id": 2**64 - 1}, "cbor", bytes.fromhex("00000015 a2 6474797065 624f6b 626964 1bffffffffffffffff")),
    ({"type": "Ok", "id": 1}, "json", b'\x00\x00\x00\x17{"type": "Ok", "id": 1}'),
    ({"text": "é\n"}, "json", b'\x00\x00\x00\x14{"text": "\\u00e9\\n"}'),
    ({"text": "é"}, "cbor", bytes.fromhex("00000009a1647465787462c3a9")),
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)
messages = st.dictionaries(st.text(), values, max_size=5)
formats: st.SearchStrategy[Format] = st.sampled_from(["cbor", "json"])


@pytest.mark.parametrize(("message", "fmt", "data"), GOLDEN)
def test_golden_frames(message: dict[str, Any], fmt: Format, data: bytes) -> None:
    assert encode(message, fmt) == data
    assert decode(data[4:], fmt) == message


@given(st.lists(messages, min_size=1, max_size=4), formats, st.data())
def test_any_cut_of_the_stream_gives_the_same_messages(
    sent: list[dict[str, Any]], fmt: Format, data: st.DataObject
) -> None:
    stream = b"".join(encode(message, fmt) for message in sent)
    framer, received = Framer(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        framer.feed(stream[:size])
        stream = stream[size:]
        while (body := framer.next_body()) is not None:
            received.append(decode(body, framer.format))
    assert received == sent and framer.format == fmt and framer.pending == 0


@given(st.binary(max_size=200), formats)
def test_any_bytes_are_a_map_or_a_bad_frame(body: bytes, fmt: Format) -> None:
    try:
        value = decode(body, fmt)
    except BadFrame as error:
        assert str(error)
    else:
        assert isinstance(value, dict) and all(isinstance(key, str) for key in value)


@pytest.mark.parametrize("length", [0, MAX_FRAME_BYTES + 1, 2**32 - 1])
def test_a_forbidden_length_is_refused_by_its_header_alone(length: int) -> None:
    framer = Framer()
    framer.feed(struct.pack(">I", length))
    with pytest.raises(BadFrame, match=str(length)):
        framer.next_body()


def nested(depth: int, fmt: Format) -> bytes:
    """A map that holds `depth - 1` nested lists."""
    value: Any = 0
    for _ in range(depth - 1):
        value = [value]
    return cbor2.dumps({"x": value}) if fmt == "cbor" else json.dumps({"x": value}).encode()


@pytest.mark.parametrize("fmt", ["cbor", "json"])
def test_the_depth_limit_is_exact(fmt: Format) -> None:
    assert set(decode(nested(MAX_DEPTH, fmt), fmt)) == {"x"}
    with pytest.raises(BadFrame):
        decode(nested(MAX_DEPTH + 1, fmt), fmt)


def test_brackets_in_json_text_nest_nothing() -> None:
    assert decode(json.dumps({"x": '[{"' * 100}).encode(), "json") == {"x": '[{"' * 100}


@pytest.mark.parametrize(
    ("body", "fmt"),
    [
        (b"\x80", "cbor"),
        (b"\xa0\x00", "cbor"),
        (b"\xa2\x61a\x01\x61a\x02", "cbor"),
        (b"\xa1\x61a\x62\xc3", "cbor"),
        (b"\xa1\x61a\x61\xff", "cbor"),
        (b"\xa1\x41a\x01", "cbor"),
        (b"\xa1\x61a\xc2\x41\x01", "cbor"),
        (b"\xa1\x61a\xc1\x00", "cbor"),
        (b"\xa1\x61a\xd8\x1c\x81\xd8\x1d\x00", "cbor"),
        (b"\xa1\x61a\xd9\xff\xff\x00", "cbor"),
        (b"\x9b" + b"\xff" * 8, "cbor"),
        (b"\xbb" + b"\xff" * 8, "cbor"),
        (b"[]", "json"),
        (b"{} {}", "json"),
        (b'{"a":1,"a":2}', "json"),
        (b'{"b":{"a":1,"a":2}}', "json"),
        (b'{"a":NaN}', "json"),
        (b'{"a":-Infinity}', "json"),
        (b'{"a":"\xff"}', "json"),
        (b"\xef\xbb\xbf{}", "json"),
        (b'{"a":' + b"9" * 5000 + b"}", "json"),
        (b'{"a":' + b"[" * 100_000, "json"),
        (b'{"a":"' + b'\\"' * 500_000, "json"),
    ],
)
def test_what_is_no_message(body: bytes, fmt: Format) -> None:
    with pytest.raises(BadFrame):
        decode(body, fmt)


def test_a_message_larger_than_a_frame_is_refused() -> None:
    with pytest.raises(BadFrame, match=str(MAX_FRAME_BYTES)):
        encode({"x": "y" * MAX_FRAME_BYTES}, "cbor")
