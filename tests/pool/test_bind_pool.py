"""Finding, starting and binding a pool, over the real command, daemon, socket and frames."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing
from pathlib import Path

import pytest

from aerix_server.pool.port import Edit, Generated, GenerationOptions, NewSegment, PoolFailed, Text, Waiting
from aerix_server.pool.references import EMBEDDED, absolute, same_model, slug, wanted_model
from aerix_server.pool.status import pool_status
from aerix_server.protocol.events import Notice
from aerix_server.protocol.outcomes import AerixError
from tests.pool.toy_pools import BOUND_S, Toys

JSON = {"kind": "Json", "schema": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}


async def test_a_pool_is_started_and_serves_the_port(toys: Toys) -> None:
    model = toys.script("one", '{"a": "hello"}')
    bound = await toys.bind(toys.settings(model))
    assert (bound.main.member, bound.main.model, bound.socket) == ("main", model, str(toys.socket))
    assert bound.decision == bound.main and "Json" in bound.main.constraints and bound.main.window > 0
    pool = bound.pool
    state = await pool.create(
        "main", [NewSegment("s1", "system", "Be brief."), NewSegment("s2", "user", "Hi <|im_end|>")]
    )
    assert [(item.id, item.role) for item in state.segments] == [("s1", "system"), ("s2", "user")]
    items = [item async for item in pool.generate(state.context, GenerationOptions(64, JSON, append_id="s3"))]
    done = items[-1]
    assert isinstance(done, Generated) and (done.finish, done.text) == ("stop", '{"a": "hello"}')
    assert "".join(item.text for item in items if isinstance(item, Text)) == done.text
    assert any(isinstance(item, Waiting) for item in items[:-1])
    assert done.appended is not None and done.appended.id == "s3" and done.usage.prompt_tokens == state.tokens
    after = await pool.edit(
        state.context,
        [
            Edit("append", segment=NewSegment("s4", "user", "more")),
            Edit("replace", id="s2", text="Ho"),
            Edit("pin", id="s4", pinned=True),
            Edit("remove", id="s1"),
        ],
    )
    assert [(item.id, item.pinned) for item in after.segments] == [("s2", False), ("s3", False), ("s4", True)]
    assert after.version > state.version and after == await pool.show(state.context)
    fork = await pool.fork(state.context, "s3")
    assert [item.id for item in fork.segments] == ["s2", "s3"]
    await pool.drop(state.context)
    with pytest.raises(PoolFailed) as failed:
        await pool.show(state.context)
    assert failed.value.code == "unknown_context"
    await pool.aclose()


async def test_a_turn_cut_by_its_limit_is_not_appended(toys: Toys) -> None:
    bound = await toys.bind(toys.settings(toys.script("long", '{"a": "' + "x" * 200 + '"}')))
    state = await bound.pool.create("main", [NewSegment("s1", "user", "x")])
    *_, done = [item async for item in bound.pool.generate(state.context, GenerationOptions(20, JSON, append_id="s2"))]
    assert isinstance(done, Generated) and done.finish == "length" and done.appended is None
    assert len((await bound.pool.show(state.context)).segments) == 1
    await bound.pool.aclose()


async def test_the_running_pool_is_shared_and_loads_what_it_lacks(toys: Toys) -> None:
    one, two = toys.script("one", "1"), toys.script("two", "2")
    first = await toys.bind(toys.settings(one))
    second = await toys.bind(toys.settings(one, decision={"model": two}))
    assert first.main.member == second.main.member == "main" and second.decision.member == slug(two)
    third = await toys.bind(toys.settings(two))
    assert third.main.member == slug(two)
    async with await toys.client() as client:
        assert {member.model for member in (await client.status()).members} == {one, two}
    for bound in (first, second, third):
        await bound.pool.aclose()


async def test_many_at_once_start_one_pool(toys: Toys) -> None:
    settings = toys.settings(toys.script("one", "1"))
    bound = await asyncio.gather(*(toys.bind(settings) for _ in range(4)))
    pids = set()
    for one in bound:
        async with await toys.client() as client:
            pids.add((await client.status()).pool.pid)
        await one.pool.aclose()
    assert len(pids) == 1


@pytest.mark.parametrize("running", [False, True])
async def test_a_model_that_is_not_there_is_named(toys: Toys, running: bool) -> None:
    if running:
        await (await toys.bind(toys.settings(toys.script("one", "1")))).pool.aclose()
    missing = str(toys.folder / "missing.json")
    with pytest.raises(AerixError) as refused:
        await toys.bind(toys.settings(missing))
    assert refused.value.code == ("model_refused" if running else "pool_unavailable")
    assert missing in refused.value.message and "Traceback" not in refused.value.message


async def test_a_command_that_is_not_there_is_named(toys: Toys) -> None:
    with pytest.raises(AerixError) as refused:
        await toys.bind(toys.settings("x", pool={"caldrix": "no-such-command"}))
    assert (
        refused.value.code == "pool_unavailable" and "no-such-command" in refused.value.message and refused.value.hint
    )


async def test_a_pool_that_never_answers_is_given_up(toys: Toys) -> None:
    with pytest.raises(AerixError, match="within 1 s"):
        await toys.bind(toys.settings("x", pool={"caldrix": "sh -c 'exec sleep 5' ", "start_timeout_secs": 1}))


async def test_a_killed_pool_is_a_failure_and_the_next_bind_starts_another(toys: Toys) -> None:
    settings = toys.settings(toys.script("slow", '{"a": "' + "x" * 500 + '"}', pace_s=0.05))
    bound = await toys.bind(settings)
    async with await toys.client() as client:
        pid = (await client.status()).pool.pid
    state = await bound.pool.create("main", [NewSegment("s1", "user", "x")])
    with pytest.raises(PoolFailed) as failed:
        async for item in bound.pool.generate(state.context, GenerationOptions(600, JSON)):
            if isinstance(item, Text):
                os.kill(pid, signal.SIGKILL)
    assert failed.value.code == "unavailable" and failed.value.message
    await bound.pool.aclose()
    again = await toys.bind(settings)
    async with await toys.client() as client:
        assert (await client.status()).pool.pid != pid
    await again.pool.aclose()


async def test_leaving_a_generation_frees_its_place_at_once(toys: Toys) -> None:
    settings = toys.settings(
        toys.script("slow", '{"a": "' + "x" * 5000 + '"}', pace_s=0.05), pool={"max_connections": 1}
    )
    bound = await toys.bind(settings)
    state = await bound.pool.create("main", [NewSegment("s1", "user", "x")])
    loop = asyncio.get_running_loop()
    async with aclosing(bound.pool.generate(state.context, GenerationOptions(6000, JSON))) as items:
        async for item in items:
            if isinstance(item, Text):
                break
        left = loop.time()
    assert loop.time() - left < 0.2
    async with await toys.client() as client, asyncio.timeout(BOUND_S):
        while any(member.queue.running for member in (await client.status()).members):
            await asyncio.sleep(0.01)
    async with asyncio.timeout(BOUND_S):  # the one slot is free again
        short = GenerationOptions(3, JSON)
        assert [item async for item in bound.pool.generate(state.context, short)]
    await bound.pool.aclose()


async def test_a_cancelled_generation_does_not_wait_for_the_pass_under_way(toys: Toys) -> None:
    """A cancel in the middle of a long prompt took as long as the pool's pass."""
    pass_s = 3.0
    bound = await toys.bind(toys.settings(toys.script("slow", '{"a": "' + "x" * 50 + '"}', pace_s=pass_s)))
    state = await bound.pool.create("main", [NewSegment("s1", "user", "x")])
    begun = asyncio.Event()

    async def generate() -> None:
        async with aclosing(bound.pool.generate(state.context, GenerationOptions(60, JSON))) as items:
            async for item in items:
                if isinstance(item, Text):
                    begun.set()

    task = asyncio.create_task(generate())
    async with asyncio.timeout(BOUND_S):
        await begun.wait()
    started = asyncio.get_running_loop().time()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() and asyncio.get_running_loop().time() - started < pass_s / 2
    await bound.pool.aclose()


async def test_status_tells_without_starting(toys: Toys) -> None:
    settings = toys.settings(toys.script("one", "1"))
    down = await pool_status(settings)
    assert (down.running, down.status, down.socket) == (False, None, str(toys.socket))
    await (await toys.bind(settings)).pool.aclose()
    up = await pool_status(settings)
    assert up.running and up.status is not None and up.status["members"][0]["member"] == "main"


async def test_auto_is_the_embedded_model_and_says_so_once(toys: Toys) -> None:
    with pytest.raises(AerixError):
        await toys.bind(toys.settings("auto"))
    notices = [report for report in toys.reports if isinstance(report, Notice)]
    assert len(notices) == 1 and EMBEDDED in notices[0].text


@pytest.mark.parametrize(
    ("reference", "name"),
    [("smollm2-instruct", "smollm2-instruct"), ("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b"), ("", "model-e3b0c4")],
)
def test_slugs(reference: str, name: str) -> None:
    assert slug(reference) == name


def test_slugs_of_different_files_differ() -> None:
    assert slug("/a/Model X.gguf") != slug("/b/Model X.gguf") and slug("/a/Model X.gguf").startswith("model-x-")
    assert len(slug("hf:org/" + "x" * 300)) < 64


def test_references() -> None:
    assert wanted_model("auto")[0] == EMBEDDED and wanted_model("x") == ("x", None)
    assert (
        absolute("m.gguf", Path("/w")) == "/w/m.gguf" and absolute("smollm2-instruct", Path("/w")) == "smollm2-instruct"
    )
    assert absolute("hf:a/b/c.gguf", Path("/w")) == "hf:a/b/c.gguf"
    assert same_model("/w/./m.gguf", "/w/m.gguf") and not same_model("a", "b")
