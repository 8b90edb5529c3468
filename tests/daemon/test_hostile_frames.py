"""Broken and hostile bytes end their own connection with one Error, and nothing else."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import AsyncIterator

import cbor2
import psutil
import pytest

from caldrix.protocol.messages import Segment
from tests.daemon.daemon_pool import Served, until
from tests.daemon.raw_wire import RawWire, frame

STATUS = cbor2.dumps({"type": "PoolStatus", "id": 1})
WITH_FIELD = b"\xa3" + STATUS[1:] + b"\x61x"

BAD_CBOR = {
    "length zero": struct.pack(">I", 0),
    "length 4G": struct.pack(">I", 2**32 - 1),
    "length 17M": struct.pack(">I", 17 << 20),
    "list": frame(b"\x83\x01\x02\x03"),
    "junk": frame(b"\xff" * 4),
    "nested arrays": frame(b"\x81" * 200_000),
    "nested in a field": frame(WITH_FIELD + b"\x81" * 70 + b"\x00"),
    "huge array head": frame(b"\x9b" + b"\xff" * 8),
    "huge text head": frame(WITH_FIELD + b"\x7b\x00\x00\x00\xff" + b"\xff" * 4),
    "bad utf-8": frame(WITH_FIELD + b"\x61\xff"),
    "truncated head": frame(b"\xa3" + STATUS[1:] + b"\x61x\x19"),
    "json on a cbor connection": frame(b"{nojson}"),
    "trailing bytes": frame(STATUS + b"\x00"),
    "duplicate key": frame(b"\xa3" + STATUS[1:] + b"\x62id\x02"),
    "number as key": frame(b"\xa1\x01\x02"),
    "tagged date": frame(WITH_FIELD + b"\xc1\x00"),
    "circular value": frame(WITH_FIELD + b"\xd8\x1c\x81\xd8\x1d\x00"),
    "regular expression": frame(WITH_FIELD + b"\xd8\x23\x61x"),
    "self-described": frame(b"\xd9\xd9\xf7" + STATUS),
}
BAD_JSON = {
    "duplicate key": b'{"type":"PoolStatus","id":1,"id":2}',
    "not a number": b'{"type":"PoolStatus","id":NaN}',
    "deep": b'{"type":"PoolStatus","id":1,"x":' + b"[" * 65 + b"]" * 65 + b"}",
    "deeper": b'{"x":' + b"[" * 1_000_000,
    "trailing": b'{"type":"PoolStatus","id":1} x',
    "bad utf-8": b'{"type":"PoolStatus","id":1,"x":"\xff"}',
    "list": b"[1]",
    "cbor": STATUS,
}


@pytest.fixture
async def other(pool: Served) -> AsyncIterator[RawWire]:
    wire = await RawWire.open(pool.socket)
    await wire.hello()
    yield wire
    wire.send(type="PoolStatus", id=9)
    assert (await wire.receive())["type"] == "PoolStatus", "another connection noticed"
    await wire.aclose()


async def expect_bad_frame(wire: RawWire) -> None:
    reply = await wire.receive()
    assert (reply["type"], reply["id"], reply["code"]) == ("Error", 0, "bad_frame"), reply
    assert reply["message"] and "Traceback" not in reply["message"]
    assert await wire.closed()
    await wire.aclose()


@pytest.mark.parametrize(
    ("name", "greeted"),
    [(name, True) for name in BAD_CBOR] + [(name, False) for name, data in BAD_CBOR.items() if data[4:5] != b"{"],
)
async def test_a_bad_cbor_frame(pool: Served, other: RawWire, name: str, greeted: bool) -> None:
    wire = await RawWire.open(pool.socket)
    if greeted:
        assert (await wire.hello())["type"] == "Welcome"
    before = psutil.Process().memory_info().rss
    wire.write(BAD_CBOR[name])
    await expect_bad_frame(wire)
    assert psutil.Process().memory_info().rss - before < 64 << 20


@pytest.mark.parametrize("name", BAD_JSON)
async def test_a_bad_json_frame(pool: Served, other: RawWire, name: str) -> None:
    wire = await RawWire.open(pool.socket, "json")
    assert (await wire.hello())["type"] == "Welcome"
    wire.write(frame(BAD_JSON[name]))
    await expect_bad_frame(wire)


async def test_a_first_frame_of_bad_json_is_answered_in_json(pool: Served) -> None:
    wire = await RawWire.open(pool.socket, "json")
    wire.write(frame(b"{nojson}"))
    await expect_bad_frame(wire)


async def test_a_frame_that_ends_too_early(pool: Served, other: RawWire) -> None:
    wire = await RawWire.open(pool.socket)
    await wire.hello()
    wire.write(struct.pack(">I", 1000) + STATUS)
    wire.writer.write_eof()
    await expect_bad_frame(wire)


@pytest.mark.parametrize(
    "value",
    [b"\x9f\x01\xff", b"\x7f\x61a\xff", b"\xf9\x7e\x00", b"\x1b" + b"\xff" * 8, b"\xf7", b"\x81" * 50 + b"\x00"],
)
async def test_an_unknown_field_is_ignored(pool: Served, value: bytes) -> None:
    wire = await RawWire.open(pool.socket)
    await wire.hello()
    wire.write(frame(WITH_FIELD + value))
    assert (await wire.receive())["type"] == "PoolStatus"
    await wire.aclose()


@pytest.mark.parametrize(
    ("message", "identity"),
    [
        ({"type": "Nope", "id": 4}, 4),
        ({"type": "N" * 100_000, "id": 4}, 4),
        ({"type": ["PoolStatus"], "id": 4}, 4),
        ({"id": 4}, 4),
        ({"type": "PoolStatus"}, 0),
        ({"type": "PoolStatus", "id": -1}, 0),
        ({"type": "PoolStatus", "id": True}, 0),
        ({"type": "PoolStatus", "id": "4"}, 0),
        ({"type": "Generate", "id": 4}, 4),
        ({"type": "Generate", "id": 4, "context": "x", "max_new_tokens": 0}, 4),
        ({"type": "Generate", "id": 4, "context": "x", "max_new_tokens": 1, "logprobs": 21}, 4),
        (
            {
                "type": "Generate",
                "id": 4,
                "context": "x",
                "max_new_tokens": 1,
                "sampling": {"temperature": float("nan")},
            },
            4,
        ),
        ({"type": "Generate", "id": 4, "context": "x", "max_new_tokens": 1, "constraint": {"kind": "What"}}, 4),
        (
            {"type": "ContextCreate", "id": 4, "member": "main", "segments": [{"id": "a", "role": "tool", "text": ""}]},
            4,
        ),
        (
            {
                "type": "ContextCreate",
                "id": 4,
                "member": "main",
                "segments": [{"id": "a", "role": "user", "text": b"a"}],
            },
            4,
        ),
        ({"type": "ContextEdit", "id": 4, "context": 7, "edits": "x"}, 4),
        ({"type": "Hello", "id": 4, "version": 2, "client": {"name": "a", "version": "1"}, "client_id": "b"}, 4),
    ],
)
async def test_a_bad_request_keeps_the_connection(pool: Served, message: dict[str, object], identity: int) -> None:
    wire = await RawWire.open(pool.socket)
    await wire.hello()
    wire.write(frame(cbor2.dumps(message)))
    reply = await wire.receive()
    assert (reply["type"], reply["id"], reply["code"]) == ("Error", identity, "bad_request"), reply
    assert len(reply["message"]) < 1000
    wire.send(type="PoolStatus", id=5)
    assert (await wire.receive())["type"] == "PoolStatus"
    await wire.aclose()


@pytest.mark.parametrize("words", [["--window", "99"] * 100_000, ["--x"] * 200_000, ["--window", "9" * 1_000_000]])
async def test_flags_without_end_hold_back_nobody(pool: Served, other: RawWire, words: list[str]) -> None:
    """Found by fuzzing: 180,000 words took argparse five minutes, in which no client was answered."""
    wire = await RawWire.open(pool.socket)
    await wire.hello()
    wire.send(type="MemberLoad", id=4, model="m", member="a", flags=words)
    reply = await wire.answer(4)
    assert reply["code"] == "bad_request" and "flags" in reply["message"], reply
    await wire.aclose()


@pytest.mark.parametrize(
    "message",
    [
        {"type": "ContextCreate", "member": "n" * 1_000_000, "segments": []},
        {"type": "ContextShow", "context": "n" * 1_000_000},
        {"type": "MemberLoad", "model": "m", "member": "a", "flags": ["--window", "n" * 1_000_000]},
    ],
)
async def test_what_a_client_sent_is_never_quoted_at_length(pool: Served, message: dict[str, object]) -> None:
    wire = await RawWire.open(pool.socket)
    await wire.hello()
    wire.send(id=4, **message)
    reply = await wire.answer(4)
    assert reply["type"] == "Error" and len(reply["message"]) < 3000, reply["message"][:300]
    await wire.aclose()


async def test_what_a_large_message_took_is_given_back(pool: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    given_back = threading.Event()
    monkeypatch.setattr("caldrix.daemon.server.TRIM_EVERY_S", 0.01)
    monkeypatch.setattr("caldrix.daemon.server.trim", given_back.set)
    client = await pool.client()
    for text, expected in (("small", False), ("large " * 20_000, True)):
        name = (await client.create("main", [Segment(id="u", role="user", text=text)])).context
        await client.drop(name)
        assert given_back.is_set() <= expected
    await until(given_back.is_set, "the memory to be given back")


async def test_a_lone_surrogate_of_json_is_refused_by_name(pool: Served) -> None:
    wire = await RawWire.open(pool.socket, "json")
    await wire.hello()
    wire.send(type="ContextDrop", id=3, context="\ud800")
    reply = await wire.receive()
    assert reply["code"] == "bad_request" and "surrogate" in reply["message"]
    await wire.aclose()


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"type": "PoolStatus", "id": 3}, "bad_request"),
        ({"type": "Nope", "id": 3}, "bad_request"),
        ({"type": "Hello", "id": 3, "version": 2}, "bad_request"),
        ({"type": "Hello", "id": 3, "version": 1}, "version"),
        ({"type": "Hello", "id": 3, "version": 2**63}, "version"),
    ],
)
async def test_a_connection_opens_with_hello_of_this_version(
    pool: Served, message: dict[str, object], code: str
) -> None:
    wire = await RawWire.open(pool.socket)
    wire.write(frame(cbor2.dumps(message)))
    reply = await wire.receive()
    assert (reply["type"], reply["id"], reply["code"]) == ("Error", 3, code)
    assert reply.get("supported") == ([2] if code == "version" else None)
    assert await wire.closed()
    await wire.aclose()


async def test_who_never_greets_is_hung_up_on(pool: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caldrix.daemon.connection.HELLO_TIMEOUT_S", 0.05)
    wire = await RawWire.open(pool.socket)
    assert (await wire.receive())["code"] == "bad_request"
    assert await wire.closed()
    await wire.aclose()


async def test_an_open_id_cannot_be_used_again_and_a_closed_one_can(pool: Served) -> None:
    wire = await RawWire.open(pool.socket)
    await wire.hello()
    wire.send(type="ContextCreate", id=1, member="main", segments=[{"id": "u", "role": "user", "text": "hold"}])
    context = (await wire.receive())["context"]
    wire.send(type="Generate", id=2, context=context, max_new_tokens=5)
    await until(pool.member.started.is_set, "the generation to start")
    wire.send(type="PoolStatus", id=2)
    assert (await wire.answer(2))["code"] == "bad_request"
    wire.send(type="Cancel", id=3, target=2)
    wire.send(type="Cancel", id=4, target=2)
    wire.send(type="Cancel", id=5, target=77)
    replies = {}
    while len(replies) < 4:
        message = await wire.receive()
        if message["type"] in ("Ok", "Done", "Error"):
            replies[message["id"]] = message
    assert replies[2]["finish"] == "cancelled" and {replies[n]["type"] for n in (3, 4, 5)} == {"Ok"}
    wire.send(type="PoolStatus", id=2)
    assert (await wire.answer(2))["type"] == "PoolStatus"
    await wire.aclose()


async def test_too_many_open_requests_are_refused(pool: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caldrix.daemon.connection.MAX_OPEN_REQUESTS", 2)
    wire = await RawWire.open(pool.socket)
    await wire.hello()
    wire.send(type="ContextCreate", id=1, member="main", segments=[{"id": "u", "role": "user", "text": "hold"}])
    context = (await wire.receive())["context"]
    for identity in (2, 3, 4):
        wire.send(type="Generate", id=identity, context=context, max_new_tokens=5)
    assert (await wire.answer(4))["code"] == "busy"
    await wire.aclose()


async def test_a_reader_that_stands_still_holds_back_nobody(pool: Served) -> None:
    slow = await RawWire.open(pool.socket)
    await slow.hello(client_id="slow")
    text = "a text of some length " * 150
    slow.send(type="ContextCreate", id=1, member="main", segments=[{"id": "u", "role": "user", "text": text}])
    context = (await slow.receive())["context"]
    before = psutil.Process().memory_info().rss
    flood = frame(cbor2.dumps({"type": "ContextShow", "id": 7, "context": context, "text": True})) * 20_000
    sending = asyncio.create_task(_drain(slow, flood))
    other = await pool.client("other")
    name = (await other.create("main", [])).context
    for _ in range(50):
        async with asyncio.timeout(5):
            await other.show(name)
    assert not sending.done(), "the pool read on although nobody read its answers"
    assert psutil.Process().memory_info().rss - before < 64 << 20
    sending.cancel()
    await asyncio.wait({sending})
    slow.writer.transport.abort()


async def _drain(wire: RawWire, data: bytes) -> None:
    wire.write(data)
    await wire.writer.drain()
