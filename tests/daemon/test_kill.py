"""A kill -9 of either end, in the middle of a frame or of a generation: what others notice, and what comes after."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from caldrix.client.client import GenerationFrame, PoolClient
from caldrix.protocol.errors import ConnectionLost
from caldrix.protocol.messages import Delta, Done, Segment
from tests.daemon.daemon_pool import BOUND_S
from tests.daemon.pool_process import REAL, PoolProcess, pool_process
from tests.doubles.tiny_models import write_tiny

REPLY = " ".join(str(number * number) for number in range(150))
"""Nothing that repeats, so that drafting does not shorten it."""
AT_ONCE_S = 5.0
CLIENT = """
import asyncio, struct, sys
import cbor2
from pathlib import Path
from tests.daemon.raw_wire import RawWire, frame

async def main(path):
    wire = await RawWire.open(Path(path))
    await wire.hello(client_id="killed")
    segments = [{"id": "u", "role": "user", "text": "go"}]
    wire.send(type="ContextCreate", id=1, member="main", segments=segments)
    context = (await wire.receive())["context"]
    wire.send(type="Generate", id=2, context=context, max_new_tokens=5000)
    while (await wire.receive())["type"] != "Delta":
        pass
    half = frame(cbor2.dumps({"type": "ContextShow", "id": 3, "context": context}))
    wire.write(half[: len(half) // 2])
    await wire.writer.drain()
    print("half", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="cx"))
    yield path
    shutil.rmtree(path)


def script(folder: Path) -> list[str]:
    path = folder / "script.json"
    path.write_text(json.dumps({"replies": [REPLY], "pace_s": 0.005}))
    return ["--load", f"{path}=main", "--max-batch", "2"]


def user(text: str) -> list[Segment]:
    return [Segment(id="u", role="user", text=text)]


async def collected(frames: Any) -> list[GenerationFrame]:
    async with asyncio.timeout(3 * BOUND_S):
        return [frame async for frame in frames]


async def test_a_client_killed_in_the_middle_of_a_frame_costs_the_other_nothing(folder: Path) -> None:
    with pool_process(folder, *script(folder)) as pool:
        killed = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, str(pool.socket), stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
        async with await PoolClient.connect(pool.socket, "other") as client:
            assert killed.stdout is not None
            async with asyncio.timeout(BOUND_S):
                assert await killed.stdout.readline() == b"half\n"
            frames = client.generate((await client.create("main", user("go on"))).context, 5000)
            first = [await anext(frames)]
            assert (await client.status()).members[0].queue.running == 2
            killed.kill()
            await killed.wait()
            every = first + await collected(frames)
            assert isinstance(every[-1], Done) and every[-1].text == REPLY
            assert "".join(frame.text for frame in every if isinstance(frame, Delta)) == REPLY
            async with asyncio.timeout(BOUND_S):
                while (status := await client.status()).connections > 1 or status.members[0].queue.running:
                    await asyncio.sleep(0.01)
        assert "Traceback" not in pool.said.read_text()


async def test_a_killed_pool_is_told_to_both_clients_at_once_and_the_next_starts_by_itself(folder: Path) -> None:
    words = script(folder)
    with pool_process(folder, *words) as pool:
        clients = [await PoolClient.connect(pool.socket, name) for name in ("one", "two")]
        streams = []
        for client in clients:
            frames = client.generate((await client.create("main", user("go on"))).context, 5000)
            while not isinstance(await anext(frames), Delta):
                pass
            streams.append(frames)
        pool.kill()
        async with asyncio.timeout(AT_ONCE_S):
            ends = await asyncio.gather(*(collected(frames) for frames in streams), return_exceptions=True)
        for end in ends:
            assert isinstance(end, ConnectionLost) and "the pool" in str(end), end
        for client in clients:
            with pytest.raises(ConnectionLost):
                await client.status()
            await client.aclose()
    assert pool.socket.exists(), "nobody removed the socket, so the next pool finds a stale one"
    with pytest.raises(ConnectionLost, match="no pool answers"):
        await PoolClient.connect(pool.socket, "three")
    with pool_process(folder, *words) as again:
        async with await PoolClient.connect(again.socket, "three") as client:
            name = (await client.create("main", user("and now"))).context
            assert (await collected(client.generate(name, 5000)))[-1].text == REPLY  # type: ignore[union-attr]


async def test_a_pool_killed_with_half_a_frame_sent_leaves_no_half_message(folder: Path) -> None:
    """A reader that sees the end inside a frame knows it for what it is."""
    with pool_process(folder, *script(folder)) as pool:
        wire = await pool.wire("me")
        wire.send(
            type="ContextCreate", id=1, member="main", segments=[{"id": "u", "role": "user", "text": "x" * 100_000}]
        )
        context = (await wire.answer(1))["context"]
        for identity in range(2, 200):
            wire.send(type="ContextShow", id=identity, context=context, text=True)
        await wire.receive()
        pool.kill()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            while True:
                assert (await wire.receive())["type"] == "ContextInfo"
        await wire.aclose()


async def test_a_killed_pool_resumes_what_its_store_held(folder: Path) -> None:
    model = write_tiny(folder / "tiny.gguf", "attention")
    words = [
        "--load",
        f"{model}=main",
        "--store-dir",
        str(folder / "store"),
        "--context-budget",
        "16M",
        "--threads",
        "1",
    ]
    prompt = user("Once upon a time there was a crow that counted every stone of the long wall. " * 8)
    with pool_process(folder, *words, module=REAL) as pool:
        cold = await spoken(pool, prompt)
        async with await PoolClient.connect(pool.socket, "two") as client:
            frames = client.generate((await client.create("main", user("and then " * 20))).context, 1500)
            while not isinstance(await anext(frames), Delta):
                pass
            pool.kill()
            with pytest.raises(ConnectionLost):
                await collected(frames)
    assert cold.usage.recomputed_from == 0 and cold.usage.prompt_tokens > 300
    with pool_process(folder, *words, module=REAL) as again:
        warm = await spoken(again, prompt)
    assert warm.usage.recomputed_from > 0 and warm.text == cold.text
    assert warm.usage.recomputed_from >= 256, "less than the stored pieces was resumed"


async def spoken(pool: PoolProcess, prompt: list[Segment]) -> Done:
    async with await PoolClient.connect(pool.socket, "me") as client:
        name = (await client.create("main", prompt)).context
        last = (await collected(client.generate(name, 24)))[-1]
        assert isinstance(last, Done)
        return last
