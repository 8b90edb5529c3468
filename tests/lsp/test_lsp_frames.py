"""The framer, and the schema check: tables of small inputs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerix_server.lsp.frames import HEADER_LIMIT, Splitter, TooLong, frame
from aerix_server.lsp.schema_check import schema_fault


@pytest.mark.parametrize(
    ("data", "bodies"),
    [
        (b"Content-Length: 2\r\n\r\n{}", [b"{}"]),
        (b"content-length:2\r\n\r\n{}", [b"{}"]),
        (b"Content-Length: 2\n\n{}", [b"{}"]),
        (b"Content-Length: 0\r\n\r\nContent-Length: 1\r\n\r\nx", [b"", b"x"]),
        (b"X: 1\r\n\r\nContent-Length: 1\r\n\r\nx", [b"x"]),
        (b"Content-Length: -1\r\n\r\nContent-Length: 1\r\n\r\nx", [b"x"]),
        (b"Content-Length: 99\r\n\r\nshort", []),
        (b"Content-Length: 101\r\n\r\n" + b"y" * 101 + b"Content-Length: 1\r\n\r\nx", [TooLong(101), b"x"]),
        (b"z" * (HEADER_LIMIT + 1), []),
    ],
)
def test_splitting(data: bytes, bodies: list[bytes | TooLong]) -> None:
    assert list(Splitter(limit=100).feed(data)) == bodies
    splitter = Splitter(limit=100)
    assert [body for byte in data for body in splitter.feed(bytes([byte]))] == bodies


@given(st.lists(st.binary(max_size=50)), st.integers(1, 40))
def test_what_is_framed_comes_back_whatever_the_chunks(bodies: list[bytes], size: int) -> None:
    data = b"".join(frame(body) for body in bodies)
    splitter = Splitter()
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    assert [body for chunk in chunks for body in splitter.feed(chunk)] == bodies


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({}, None),
        ({"type": "object", "properties": {"a": {"enum": [1, None]}}, "required": ["a"]}, None),
        ({"anyOf": [{"type": ["string", "null"]}, True], "items": {"$ref": "#/$defs/x"}}, None),
        ({"type": "text"}, "type: must be"),
        ({"type": []}, "type: must be"),
        ({"properties": {"a": {"type": 7}}}, "properties.a.type: must be"),
        ({"properties": {"a": 7}}, "properties.a: a schema is an object"),
        ({"properties": []}, "properties: must be an object"),
        ({"enum": []}, "enum: must be"),
        ({"required": "a"}, "required: must be"),
        ({"anyOf": [{"minLength": -1}]}, "anyOf.0.minLength: must be"),
        ({"minimum": "1"}, "minimum: must be"),
    ],
)
def test_schema_faults_name_their_place(schema: Any, fault: str | None) -> None:
    found = schema_fault(schema)
    assert found is None if fault is None else found is not None and found.startswith(fault)


def test_a_deep_schema_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(500):
        schema = {"items": schema}
    fault = schema_fault(schema)
    assert fault is not None and "deeper" in fault
