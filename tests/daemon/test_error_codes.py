"""Every error code of the protocol, provoked through the socket of a pool process.

One table: what is done, and words that its sentence must hold. Two pools serve it: scripted members, whose replies can
be slow, and the real command with a tiny model, for what only real files, memory and servers can break.
"""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from caldrix.protocol.errors import ERROR_CODES
from tests.daemon.pool_process import REAL, PoolProcess, pool_process
from tests.daemon.raw_wire import RawWire
from tests.doubles.tiny_models import write_tiny
from tests.remote.fake_server import Body, Reply, Script, answer, running, vllm

WINDOW = 300
SERVING = ("--window", "512", "--context-budget", "1M", "--threads", "1", "--memory-limit", "4G")
Answer = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """A connection to each pool, and what is loaded from. `remote` is a server that fails each generation."""

    toy: RawWire
    real: RawWire
    folder: Path
    remote: str


Provoke = Callable[[Setting], Awaitable[Answer]]


def toy_pool(scripts: Path, folder: Path) -> AbstractContextManager[PoolProcess]:
    return pool_process(folder, "--load", f"{scripts / 'script.json'}=main")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="cx"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def toy(folder: Path) -> Iterator[PoolProcess]:
    (folder / "toy").mkdir()
    (folder / "script.json").write_text(json.dumps({"replies": ["slow " * 1000], "window": WINDOW, "pace_s": 0.02}))
    with toy_pool(folder, folder / "toy") as pool:
        yield pool


@pytest.fixture(scope="module")
def real(folder: Path) -> Iterator[PoolProcess]:
    (folder / "real").mkdir()
    tiny = write_tiny(folder / "tiny.gguf", "attention")
    (folder / "half.gguf").write_bytes(tiny.read_bytes()[: tiny.stat().st_size // 2])
    # Another model's key, of the same length: llama.cpp passes over it, and the cache cannot be told any more.
    key, other = b"llama.rope.dimension_count", b"llama.attention.indexer.xx"
    (folder / "odd.gguf").write_bytes(tiny.read_bytes().replace(key, other))
    with pool_process(folder / "real", "--load", f"{tiny}=main", *SERVING, module=REAL) as pool:
        yield pool


@pytest.fixture(scope="module")
def remote() -> Iterator[str]:
    """It serves the one token that a load tries, and nothing longer."""
    script = Script()

    def complete(body: Body) -> Reply:
        return (
            answer({"error": "no GPU"}, 500)
            if body.get("max_tokens", 0) > 32
            else vllm(Script(), "/v1/completions", body)
        )

    script.routes["/v1/completions"] = complete
    with ExitStack() as stack:
        yield f"openai:{stack.enter_context(running(vllm, script))}/v1#org/model"


@pytest.fixture
async def setting(toy: PoolProcess, real: PoolProcess, folder: Path, remote: str) -> AsyncIterator[Setting]:
    wires = [await pool.wire("me") for pool in (toy, real)]
    yield Setting(wires[0], wires[1], folder, remote)
    for wire in wires:
        await wire.aclose()


async def ask(wire: RawWire, **message: Any) -> Answer:
    wire.send(id=7, **message)
    return await wire.answer(7)


async def context(wire: RawWire, text: str = "hello", member: str = "main") -> str:
    segments = [{"id": "u", "role": "user", "text": text}]
    made = await ask(wire, type="ContextCreate", member=member, segments=segments)
    assert made["type"] == "ContextInfo", made
    name: str = made["context"]
    return name


async def edit(wire: RawWire, **change: Any) -> Answer:
    return await ask(wire, type="ContextEdit", context=await context(wire), **change)


async def generate(wire: RawWire, text: str = "hello", member: str = "main", **fields: Any) -> Answer:
    name = await context(wire, text, member)
    return await ask(wire, **{"type": "Generate", "context": name, "max_new_tokens": 40} | fields)


async def load(wire: RawWire, model: object, name: str = "other", *flags: str) -> Answer:
    return await ask(wire, type="MemberLoad", model=str(model), member=name, flags=list(flags))


async def another_version(at: Setting) -> Answer:
    wire = await RawWire.open(Path(at.toy.writer.get_extra_info("peername")))
    answered = await wire.hello(version=3)
    assert answered["supported"] == [2] and await wire.closed()
    await wire.aclose()
    return answered


async def an_announced_17_mib(at: Setting) -> Answer:
    at.toy.write(struct.pack(">I", 17 << 20))
    answered = await at.toy.receive()
    assert answered["id"] == 0 and await at.toy.closed()
    return answered


async def an_unheard_type(at: Setting) -> Answer:
    return await ask(at.toy, type="Nope")


async def a_context_of_nobody(at: Setting) -> Answer:
    return await ask(at.toy, type="ContextCreate", member="nobody", segments=[])


async def a_context_never_made(at: Setting) -> Answer:
    return await ask(at.toy, type="ContextShow", context="x1")


async def the_removal_of_nothing(at: Setting) -> Answer:
    return await edit(at.toy, edits=[{"op": "remove", "id": "missing"}])


async def one_id_twice(at: Setting) -> Answer:
    return await edit(at.toy, edits=[{"op": "append", "segment": {"id": "u", "role": "user", "text": "again"}}])


async def an_edit_of_an_old_version(at: Setting) -> Answer:
    name = await context(at.toy)
    for text in ("one", "two"):
        made = {"type": "ContextEdit", "context": name, "edits": [{"op": "replace", "id": "u", "text": text}]}
        answered = await ask(at.toy, **made, version=1)
    assert answered["detail"] == {"version": 2}
    return answered


async def a_prompt_beyond_the_window(at: Setting) -> Answer:
    answered = await generate(at.toy, "w" * 400)
    assert answered["detail"]["window"] == WINDOW and answered["detail"]["tokens"] > 400
    assert str(answered["detail"]["tokens"]) in answered["message"]
    return answered


async def a_schema_of_no_type(at: Setting) -> Answer:
    schema = {"type": "object", "properties": {"name": {"type": "nope"}}}
    return await generate(at.toy, constraint={"kind": "Json", "schema": schema})


async def a_grammar_for_a_server_that_has_none(at: Setting) -> Answer:
    assert (await load(at.real, at.remote, "far"))["type"] == "MemberLoaded"
    answered = await generate(at.real, member="far", constraint={"kind": "Lark", "grammar": 'start: "a"'})
    assert (await ask(at.real, type="MemberUnload", member="far"))["type"] == "Ok"
    return answered


async def more_than_the_memory_limit(at: Setting) -> Answer:
    answered = await load(at.real, at.folder / "tiny.gguf", "other", "--context-budget", "7G")
    told = answered["detail"]
    assert told["needed_bytes"] > 7 << 30 and told["limit_bytes"] == 4 << 30
    assert 0 < told["available_bytes"] < told["limit_bytes"], "what the first member holds is not available"
    for count in ("needed_bytes", "available_bytes", "limit_bytes"):
        assert f"{told[count] / 2**30:.1f} GiB" in answered["message"]
    return answered


async def a_file_that_is_not_there(at: Setting) -> Answer:
    return await load(at.real, "/no/such/file.gguf")


async def half_a_file(at: Setting) -> Answer:
    return await load(at.real, at.folder / "half.gguf")


async def a_model_of_unknown_memory_beside_another(at: Setting) -> Answer:
    return await load(at.real, at.folder / "odd.gguf")


async def a_name_that_is_taken(at: Setting) -> Answer:
    return await load(at.toy, at.folder / "script.json", "main")


async def a_load_and_its_cancel_in_one_breath(at: Setting) -> Answer:
    at.real.send(type="MemberLoad", id=8, model=str(at.folder / "tiny.gguf"), member="gone")
    at.real.send(type="Cancel", id=9, target=8)
    return await at.real.answer(8)


async def a_request_while_the_pool_stops(at: Setting) -> Answer:
    with tempfile.TemporaryDirectory(prefix="cx") as name, toy_pool(at.folder, Path(name)) as pool:
        wire = await pool.wire("me")
        running = await context(wire)
        wire.send(type="Generate", id=1, context=running, max_new_tokens=150)
        wire.send(type="PoolStop", id=2, grace_s=60)
        while (answered := await ask(wire, type="PoolStatus"))["type"] != "Error":
            pass
        assert (await wire.answer(1))["finish"] == "length", "its grace was not given"
        assert (await wire.answer(2))["type"] == "Ok" and await wire.closed()
        await wire.aclose()
        assert pool.process.wait(60) == 0
    return answered


async def a_server_that_fails(at: Setting) -> Answer:
    assert (await load(at.real, at.remote, "far"))["type"] == "MemberLoaded"
    answered = await generate(at.real, member="far")
    assert (await ask(at.real, type="MemberUnload", member="far"))["type"] == "Ok"
    return answered


TABLE: dict[str, tuple[Provoke, tuple[str, ...]]] = {
    "version": (another_version, ("version 2", "not 3")),
    "bad_frame": (an_announced_17_mib, (str(17 << 20), str(16 << 20))),
    "bad_request": (an_unheard_type, ("'Nope'", "PoolStatus")),
    "unknown_member": (a_context_of_nobody, ("'nobody'", "loaded are: main")),
    "unknown_context": (a_context_never_made, ("'x1'", "create it again")),
    "unknown_segment": (the_removal_of_nothing, ("'missing'", "nothing was changed")),
    "duplicate_segment": (one_id_twice, ("'u'", "unique")),
    "stale_version": (an_edit_of_an_old_version, ("at version 2", "made for 1")),
    "window_exceeded": (a_prompt_beyond_the_window, (str(WINDOW), "remove segments")),
    "constraint_invalid": (a_schema_of_no_type, ("$.properties.name", "'type'", "nope")),
    "constraint_unsupported": (a_grammar_for_a_server_that_has_none, ("Lark", "this member serves")),
    "memory": (more_than_the_memory_limit, ("tiny.gguf", "--context-budget", "unload a member")),
    "model_not_found": (a_file_that_is_not_there, ("/no/such/file.gguf",)),
    "model_refused": (half_a_file, ("half.gguf", "fetch it again")),
    "footprint_unknown": (a_model_of_unknown_memory_beside_another, ("odd.gguf", "alone", "unload")),
    "busy": (a_name_that_is_taken, ("'main'", "loaded already", "choose another name")),
    "cancelled": (a_load_and_its_cancel_in_one_breath, ("the load of", "tiny.gguf")),
    "shutting_down": (a_request_while_the_pool_stops, ("is stopping", "start it again")),
    "engine_failed": (a_server_that_fails, ("500", "no GPU")),
}


def test_no_code_is_forgotten() -> None:
    assert list(TABLE) == list(ERROR_CODES)


@pytest.mark.parametrize("code", TABLE)
async def test_a_code_comes_with_a_sentence(setting: Setting, code: str) -> None:
    provoke, words = TABLE[code]
    answered = await provoke(setting)
    assert (answered["type"], answered["code"]) == ("Error", code), answered
    said: str = answered["message"]
    assert [word for word in words if word not in said] == [], said
    assert "Traceback" not in said and "\n" not in said and len(said) < 600


async def test_a_model_of_unknown_memory_is_loaded_alone_and_nothing_beside_it(setting: Setting) -> None:
    """The other half of `footprint_unknown`."""
    wire = setting.real
    assert (await ask(wire, type="MemberUnload", member="main"))["type"] == "Ok"
    alone = await load(wire, setting.folder / "odd.gguf", "odd")
    assert alone["type"] == "MemberLoaded", alone
    assert any("alone" in note or "beside" in note for note in alone["member"]["notes"])
    beside = await load(wire, setting.folder / "tiny.gguf", "main")
    assert beside["code"] == "footprint_unknown" and "'odd'" in beside["message"], beside
    assert (await generate(wire, member="odd"))["finish"] == "length"
    assert (await ask(wire, type="MemberUnload", member="odd"))["type"] == "Ok"
    assert (await load(wire, setting.folder / "tiny.gguf", "main"))["type"] == "MemberLoaded"
