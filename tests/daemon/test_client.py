"""The client against a real pool, and against peers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from caldrix.client.client import PoolClient
from caldrix.protocol.errors import BadFrame, ConnectionLost, Overdue, Refused
from caldrix.protocol.frames import MAX_FRAME_BYTES, encode
from caldrix.protocol.messages import Segment
from caldrix.protocol.paths import SOCKET_PATH_LIMIT
from tests.daemon.daemon_pool import BOUND_S, Served, until

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def peer(path: Path, behave: Behaviour) -> AsyncIterator[None]:
    """Something that listens and does as `behave` says with each connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await behave(reader, writer)
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    async with server:
        yield


async def test_leaving_a_generation_early_cancels_it(pool: Served) -> None:
    client = await pool.client()
    name = (await client.create("main", [Segment(id="u", role="user", text="long")])).context
    async with contextlib.aclosing(client.generate(name, 4000)) as frames:
        async for _ in frames:
            break
    assert pool.member.status("main").queue.running == 0, "the generation's end was not waited for"


async def test_a_cancelled_task_cancels_its_generation(pool: Served) -> None:
    client = await pool.client()
    name = (await client.create("main", [Segment(id="u", role="user", text="long")])).context

    async def consume() -> None:
        async with contextlib.aclosing(client.generate(name, 4000)) as frames:
            async for _ in frames:
                pass

    task = asyncio.create_task(consume())
    await until(pool.member.started.is_set, "the generation to start")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, BOUND_S)
    await until(lambda: pool.member.status("main").queue.running == 0, "the generation to end")


async def test_a_generation_without_frames_is_overdue_and_cancelled(pool: Served) -> None:
    client = await pool.client()
    name = (await client.create("main", [Segment(id="u", role="user", text="hold")])).context
    with pytest.raises(Overdue, match=r"0\.3 seconds"):
        async for _ in client.generate(name, 10, frame_timeout=0.3):
            pass
    await until(lambda: pool.member.status("main").queue.running == 0, "the generation's cancel")


async def test_several_requests_share_a_connection(pool: Served) -> None:
    client = await pool.client()
    contexts = [client.create("main", [Segment(id="u", role="user", text=f"say {n}")]) for n in range(20)]
    names = [info.context for info in await asyncio.gather(*contexts)]

    async def text(name: str) -> str:
        return "".join([getattr(frame, "text", "") async for frame in client.generate(name, 9) if frame.type == "Done"])

    assert await asyncio.gather(*map(text, names)) == [str(n) for n in range(20)]


async def test_a_request_too_large_to_send_leaves_the_connection(pool: Served) -> None:
    client = await pool.client()
    with pytest.raises(BadFrame, match=str(MAX_FRAME_BYTES)):
        await client.create("main", [Segment(id="u", role="user", text="x" * MAX_FRAME_BYTES)])
    assert (await client.status()).contexts == 0


async def test_a_large_context_passes(pool: Served) -> None:
    client = await pool.client()
    text = "é" * 500_000
    made = await client.create("main", [Segment(id="u", role="user", text=text)])
    assert made.tokens == 1_000_001
    assert (await client.show(made.context, text=True)).segments[0].text == text


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_a_peer_that_says_nothing_is_overdue(folder: Path) -> None:
    async with peer(folder / "s", silent):
        with pytest.raises(Overdue, match=r"0\.1 seconds"):
            await PoolClient.connect(folder / "s", "me", timeout=0.1)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"HTTP/1.1 400 Bad Request",
        encode({"type": "What", "id": 1}, "cbor"),
        encode({"type": "Ok", "id": 1}, "cbor"),
        encode({"type": "Welcome", "id": 1}, "cbor"),
    ],
    ids=["hang-up", "zero", "huge", "http", "unknown", "wrong", "incomplete"],
)
async def test_a_peer_that_is_no_pool(folder: Path, answer: bytes) -> None:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        await writer.drain()

    async with peer(folder / "s", behave):
        with pytest.raises(ConnectionLost) as error:
            await PoolClient.connect(folder / "s", "me", timeout=BOUND_S)
    assert str(error.value)


async def test_a_pool_of_another_version_is_refused_by_name(folder: Path) -> None:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(encode({"type": "Error", "id": 1, "code": "version", "message": "no", "supported": [3]}, "cbor"))
        await writer.drain()

    async with peer(folder / "s", behave):
        with pytest.raises(Refused) as refusal:
            await PoolClient.connect(folder / "s", "me", timeout=BOUND_S)
    assert refusal.value.code == "version"


async def test_a_path_past_the_limit_is_refused_with_it() -> None:
    with pytest.raises(Refused, match=str(SOCKET_PATH_LIMIT)):
        await PoolClient.connect(Path("/tmp") / ("x" * 120), "me")
