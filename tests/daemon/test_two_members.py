"""Two members of one pool process: both at work, one unloaded meanwhile, one too many, and memory that comes back."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.pool_process import REAL, PoolProcess, pool_process
from tests.daemon.raw_wire import RawWire
from tests.doubles.tiny_models import write_tiny

TOKENS = 240
MIB = 1 << 20
SERVING = ("--window", "512", "--context-budget", "1M", "--threads", "1", "--memory-limit", "2G")
Answer = dict[str, Any]


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="cx"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def models(folder: Path) -> list[Path]:
    """Two models that say different things, one that attends and one that keeps a state."""
    return [write_tiny(folder / "one.gguf", "attention"), write_tiny(folder / "two.gguf", "recurrent", seed=1)]


@pytest.fixture
def pool(folder: Path, models: list[Path]) -> Iterator[PoolProcess]:
    loads = [word for name, path in zip(("one", "two"), models, strict=True) for word in ("--load", f"{path}={name}")]
    with pool_process(folder, *loads, *SERVING, module=REAL) as pool:
        yield pool


async def ask(wire: RawWire, **message: Any) -> Answer:
    wire.send(id=7, **message)
    return await wire.answer(7)


async def begin(wire: RawWire, member: str, tokens: int = TOKENS) -> int:
    """Start a generation; gives its id."""
    segments = [{"id": "u", "role": "user", "text": f"Tell me of {member}."}]
    made = await ask(wire, type="ContextCreate", member=member, segments=segments)
    wire.send(type="Generate", id=11, context=made["context"], max_new_tokens=tokens, draft="off")
    return 11


async def until_it_speaks(wire: RawWire) -> str:
    while (frame := await wire.receive())["type"] != "Delta" or not frame["text"]:
        pass
    text: str = frame["text"]
    return text


async def rest(wire: RawWire, identity: int) -> list[Answer]:
    """Every frame of a generation to its last answer, and whatever still comes with its id until a later request's."""
    frames = []
    while not frames or frames[-1]["type"] in ("Queued", "Progress", "Delta"):
        frames.append(await wire.receive())
    wire.send(type="PoolStatus", id=99)
    while (frame := await wire.receive())["id"] != 99:
        frames.append(frame)
    return [frame for frame in frames if frame["id"] == identity]


async def alone(wire: RawWire, member: str) -> str:
    """What the member says when nobody else asks."""
    text: str = (await wire.answer(await begin(wire, member)))["text"]
    return text


async def test_two_members_work_at_once_and_say_what_each_says_alone(pool: PoolProcess) -> None:
    wires = [await pool.wire(name) for name in ("one", "two")]
    told = [await alone(wire, member) for wire, member in zip(wires, ("one", "two"), strict=True)]
    assert told[0] != told[1]
    pairs = list(zip(wires, ("one", "two"), strict=True))
    begun = [await begin(wire, member) for wire, member in pairs]
    both = await asyncio.gather(*(wire.answer(identity) for (wire, _), identity in zip(pairs, begun, strict=True)))
    assert [done["text"] for done in both] == told
    for wire in wires:
        await wire.aclose()


@pytest.mark.parametrize(("leaves", "stays"), [("one", "two"), ("two", "one")])
async def test_one_is_unloaded_while_both_generate(folder: Path, leaves: str, stays: str) -> None:
    scripts = {name: folder / f"{name}.json" for name in ("one", "two")}
    for name, path in scripts.items():
        path.write_text(json.dumps({"replies": [f"{name} " * 100], "pace_s": 0.005}))
    loads = [word for name, path in scripts.items() for word in ("--load", f"{path}={name}")]
    with pool_process(folder, *loads) as pool:
        going, staying, third = [await pool.wire(name) for name in ("going", "staying", "third")]
        begun = [await begin(going, leaves, 500), await begin(staying, stays, 500)]
        early = [await until_it_speaks(going), await until_it_speaks(staying)]
        assert (await ask(third, type="MemberUnload", member=leaves))["type"] == "Ok"
        ended = await rest(going, begun[0])
        assert [frame["type"] for frame in ended if frame["type"] in ("Done", "Error")] == [ended[-1]["type"]]
        assert ended[-1]["finish"] == "cancelled"
        assert (f"{leaves} " * 100).startswith(ended[-1]["text"]) and ended[-1]["text"].startswith(early[0])
        went_on = await rest(staying, begun[1])
        assert went_on[-1]["finish"] == "stop" and went_on[-1]["text"] == f"{stays} " * 100
        assert early[1] + "".join(frame.get("text", "") for frame in went_on[:-1]) == went_on[-1]["text"]
        status = await ask(third, type="PoolStatus")
        assert [member["member"] for member in status["members"]] == [stays]
        assert (await ask(going, type="ContextCreate", member=leaves, segments=[]))["code"] == "unknown_member"
        for wire in (going, staying, third):
            await wire.aclose()


async def test_a_real_member_is_unloaded_while_both_generate(pool: PoolProcess) -> None:
    wires = [await pool.wire(name) for name in ("one", "two")]
    told = await alone(wires[1], "two")
    begun = [await begin(wire, member) for wire, member in zip(wires, ("one", "two"), strict=True)]
    await until_it_speaks(wires[0])
    third = await pool.wire("third")
    assert (await ask(third, type="MemberUnload", member="one"))["type"] == "Ok"
    last = [frame for frame in await rest(wires[0], begun[0]) if frame["type"] in ("Done", "Error")]
    assert len(last) == 1 and last[0].get("finish") in ("cancelled", "length"), last
    assert (await wires[1].answer(begun[1]))["text"] == told
    for wire in (*wires, third):
        await wire.aclose()


async def test_one_too_many_is_refused_with_both_numbers(pool: PoolProcess, models: list[Path]) -> None:
    wire = await pool.wire("me")
    status = await ask(wire, type="PoolStatus")
    limit, used = status["memory"]["limit_bytes"], status["memory"]["used_bytes"]
    assert limit == 2 << 30
    assert used == sum(state["footprint_bytes"] + state["context_budget_bytes"] for state in status["members"]) > 0
    flags = ["--context-budget", str(limit - used)]
    refused = await ask(wire, type="MemberLoad", model=str(models[0]), member="three", flags=flags)
    told = refused["detail"]
    assert refused["code"] == "memory" and told["available_bytes"] == limit - used < told["needed_bytes"]
    assert all(f"{told[key] / 2**30:.1f} GiB" in refused["message"] for key in ("needed_bytes", "available_bytes"))
    assert len((await ask(wire, type="PoolStatus"))["members"]) == 2
    assert (await ask(wire, type="MemberUnload", member="two"))["type"] == "Ok"
    fits = await ask(wire, type="MemberLoad", model=str(models[0]), member="three", flags=["--context-budget", "1M"])
    assert fits["type"] == "MemberLoaded"
    await wire.aclose()


@pytest.mark.model
async def test_an_unloaded_member_gives_its_memory_back(pool: PoolProcess) -> None:
    """Again and again: what the allocator keeps of each load would add up."""
    wire = await pool.wire("me")
    start = pool.rss()
    for _ in range(3):
        loaded = await ask(wire, type="MemberLoad", model="smollm2-instruct", member="big")
        assert loaded["type"] == "MemberLoaded", loaded
        await wire.answer(await begin(wire, "big", 8))
        held = pool.rss()
        assert (await ask(wire, type="MemberUnload", member="big"))["type"] == "Ok"
        assert held - pool.rss() > 100 * MIB
    assert pool.rss() - start < 70 * MIB
    assert (await wire.answer(await begin(wire, "one")))["finish"] == "length"
    await wire.aclose()
