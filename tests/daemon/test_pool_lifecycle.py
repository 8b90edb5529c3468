"""Several clients, cancels, unloads, stops and absences, over an engine without a model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading

import pytest

from caldrix.client.client import PoolClient
from caldrix.daemon.options import CannotStart, LoadSpec
from caldrix.protocol.errors import ConnectionLost, Refused
from caldrix.protocol.messages import Append, AppendEdit, Delta, Done, Progress, Queued, Segment
from tests.daemon.daemon_pool import BOUND_S, Served, until
from tests.daemon.fake_engine import FakeLoader


async def start(client: PoolClient, text: str, **options: object) -> tuple[str, object]:
    """A context, and a generation on it of which the first frame was read."""
    segments = [Segment(id="u", role="user", text=text)]
    name = (await client.create("main", segments)).context
    frames = client.generate(name, 4000, **options)  # type: ignore[arg-type]
    return name, frames


async def last(frames: object) -> Done:
    async with asyncio.timeout(BOUND_S):
        *_, done = [frame async for frame in frames]  # type: ignore[attr-defined]
    return done


async def test_a_second_client_is_queued_and_both_finish(pool: Served) -> None:
    one, two = await pool.client("one"), await pool.client("two")
    _, first = await start(one, "hold")
    assert isinstance(await anext(first), Progress)
    _, second = await start(two, "say two")
    queued = await anext(second)
    assert isinstance(queued, Queued) and queued.position == 1
    pool.member.release.set()
    await first.aclose()
    assert (await last(second)).text == "two"


async def test_waiting_is_told_again_before_five_seconds(pool: Served) -> None:
    one, two = await pool.client("one"), await pool.client("two")
    _, first = await start(one, "hold")
    await anext(first)
    _, second = await start(two, "say two")
    for _ in range(2):
        async with asyncio.timeout(5):
            assert isinstance(await anext(second), Queued)
    async with asyncio.timeout(5):
        assert isinstance(await anext(first), Progress)
    pool.member.release.set()
    await first.aclose()
    assert (await last(second)).text == "two"


async def test_a_cancel_ends_a_running_and_a_waiting_generation(pool: Served) -> None:
    client = await pool.client()
    _, running = await start(client, "long")
    while not isinstance(await anext(running), Delta):
        pass
    name, waiting = await start(client, "hold", append=Append(id="a"))
    assert isinstance(await anext(waiting), Queued)
    await running.aclose()
    await anext(waiting)
    await waiting.aclose()
    await until(lambda: pool.member.status("main").queue.running == 0, "the engine to be free")
    assert len((await client.show(name)).segments) == 1, "a cancelled output was appended"


async def test_the_same_append_id_is_refused_while_it_is_generated(pool: Served) -> None:
    client = await pool.client()
    name, frames = await start(client, "hold", append=Append(id="a"))
    await anext(frames)
    with pytest.raises(Refused, match="being generated"):
        await last(client.generate(name, 5, append=Append(id="a")))
    await frames.aclose()
    await until(lambda: pool.member.status("main").queue.running == 0, "the engine to be free")


async def test_an_edit_meanwhile_stays_before_the_output(pool: Served) -> None:
    client = await pool.client()
    name, frames = await start(client, "hold say late hold", append=Append(id="a"))
    await anext(frames)
    edit = AppendEdit(op="append", segment=Segment(id="b", role="user", text="more"))
    assert (await client.edit(name, [edit])).version == 2
    pool.member.release.set()
    done = await last(frames)
    assert done.context_version == 3
    assert [segment.id for segment in (await client.show(name)).segments] == ["u", "b", "a"]


async def test_a_context_dropped_meanwhile_gets_no_segment(pool: Served) -> None:
    client = await pool.client()
    name, frames = await start(client, "hold say late hold", append=Append(id="a"))
    await anext(frames)
    await client.drop(name)
    pool.member.release.set()
    done = await last(frames)
    assert done.finish == "stop" and done.segment is None and done.context_version is None


async def test_a_vanished_client_frees_the_member(pool: Served) -> None:
    client = await pool.client("gone")
    _, frames = await start(client, "hold")
    await anext(frames)
    await client.aclose()
    with pytest.raises(ConnectionLost):
        await last(frames)
    await until(lambda: pool.member.status("main").queue.running == 0, "the vanished client's generation to end")
    other = await pool.client("other")
    _, frames = await start(other, "say fine")
    assert (await last(frames)).text == "fine"


async def test_contexts_outlive_a_short_absence_and_no_longer(vary) -> None:  # type: ignore[no-untyped-def]
    async with vary(context_grace_s=0.2) as pool:
        watcher = await pool.client("watcher")
        first = await pool.client("me")
        name, frames = await start(first, "say x")
        await last(frames)
        second = await pool.client("me")
        await first.aclose()
        await second.aclose()
        back = await pool.client("me")
        assert (await back.show(name)).context == name
        await back.aclose()

        async def dropped() -> bool:
            return (await watcher.status()).contexts == 0

        async with asyncio.timeout(BOUND_S):
            while not await dropped():
                await asyncio.sleep(0.01)
        late = await pool.client("me")
        with pytest.raises(Refused, match="no context"):
            await late.show(name)


async def test_contexts_belong_to_a_client_id(pool: Served) -> None:
    mine, same, other = [await pool.client(name) for name in ("me", "me", "you")]
    name = (await mine.create("main", [])).context
    assert (await same.show(name)).context == name
    with pytest.raises(Refused) as refusal:
        await other.show(name)
    assert refusal.value.code == "unknown_context"


@pytest.mark.parametrize("by", ["request", "signal"])
async def test_a_stop_answers_open_requests_and_removes_the_socket(pool: Served, by: str) -> None:
    client, other = await pool.client(), await pool.client("other")
    _, running = await start(client, "hold")
    await anext(running)
    _, waiting = await start(client, "say never")
    await anext(waiting)
    if by == "request":
        await other.stop()
        assert not pool.socket.exists(), "the socket is removed before the stop is answered"
    else:
        pool.stop.set()
    for frames in (running, waiting):
        assert (await last(frames)).finish == "cancelled"
    assert await pool.ended() == 0
    assert not pool.socket.exists() and pool.member.closed.is_set()
    with pytest.raises(ConnectionLost, match="no pool answers"):
        await PoolClient.connect(pool.socket, "late")


async def test_a_stop_with_grace_lets_a_generation_end(pool: Served) -> None:
    client, other = await pool.client(), await pool.client("other")
    _, frames = await start(client, "hold say done hold")
    await anext(frames)
    stopping = asyncio.create_task(other.stop(grace_s=BOUND_S))
    with contextlib.suppress(Refused):
        while True:
            await client.create("main", [])
    pool.member.release.set()
    assert (await last(frames)).finish == "stop"
    await stopping
    assert await pool.ended() == 0


async def test_a_generation_that_never_answers_ends_with_the_stop(
    pool: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caldrix.daemon.server.SETTLE_TIMEOUT_S", 0.1)
    client = await pool.client()
    _, frames = await start(client, "mute")
    await anext(frames)
    pool.stop.set()
    with pytest.raises(Refused) as refusal:
        await last(frames)
    assert refusal.value.code == "shutting_down"
    assert await pool.ended() == 0


async def test_a_generation_that_the_engine_lost_is_an_error(pool: Served) -> None:
    client = await pool.client()
    _, frames = await start(client, "mute")
    with pytest.raises(Refused, match="lost this generation"):
        await last(frames)


async def test_members_are_loaded_and_unloaded(pool: Served) -> None:
    client = await pool.client()
    progress: list[Progress] = []
    member = await client.load("models/Second.GGUF", flags=["--window", "99"], on_progress=progress.append)
    assert member.member == "second" and member.status == "ready"
    assert {frame.phase for frame in progress} == {"download", "load"}
    assert pool.loader.flags[1].window == 99 and pool.loader.flags[1].memory_limit
    assert pool.loader.used == [0, 1010]
    status = await client.status()
    assert [state.member for state in status.members] == ["main", "second"]
    assert status.memory.used_bytes == 2020 and status.memory.limit_bytes > 0
    name = (await client.create("second", [])).context
    await client.unload("second")
    assert pool.loader.members[1].closed.is_set()
    for request in (client.show(name), client.unload("second"), client.create("second", [])):
        with pytest.raises(Refused, match=r"unknown|no context|no member"):
            await request


async def test_an_unload_cancels_its_generations(pool: Served) -> None:
    client = await pool.client()
    _, frames = await start(client, "hold")
    await anext(frames)
    await client.unload("main")
    assert (await last(frames)).finish == "cancelled"
    assert (await client.status()).contexts == 0


@pytest.mark.parametrize(
    ("model", "member", "flags", "code"),
    [
        ("missing", None, None, "model_not_found"),
        ("other", "main", None, "busy"),
        ("other", "a b", None, "bad_request"),
        ("other", None, ["--window", "none"], "bad_request"),
        ("other", None, ["--unheard"], "bad_request"),
        ("other", None, ["--context-budget", "-1"], "bad_request"),
        ("bug", None, None, "engine_failed"),
    ],
)
async def test_refused_loads(pool: Served, model: str, member: str | None, flags: list[str] | None, code: str) -> None:
    client = await pool.client()
    with pytest.raises(Refused) as refusal:
        await client.load(model, member, flags)
    assert refusal.value.code == code and refusal.value.message
    assert [state.member for state in (await client.status()).members] == ["main"]


async def test_a_load_under_way_is_shown_and_its_name_is_taken(pool: Served) -> None:
    gate = pool.loader.gates["slow"] = threading.Event()
    client, other = await pool.client(), await pool.client("other")
    loading = asyncio.create_task(client.load("slow"))
    await until(lambda: pool.loader.events.qsize() == 2, "the load to start")
    assert [state.status for state in (await other.status()).members] == ["ready", "loading"]
    for request in (other.load("slow"), other.create("slow", []), other.unload("slow")):
        with pytest.raises(Refused) as refusal:
            await request
        assert refusal.value.code == "busy"
    gate.set()
    assert (await loading).status == "ready"


async def test_a_load_ends_with_its_client(pool: Served) -> None:
    pool.loader.gates["slow"] = threading.Event()
    client, other = await pool.client(), await pool.client("other")
    loading = asyncio.create_task(client.load("slow"))
    await until(lambda: pool.loader.events.qsize() == 2, "the load to start")
    await client.aclose()
    with pytest.raises(ConnectionLost):
        await loading

    async def left() -> bool:
        return len((await other.status()).members) == 1

    async with asyncio.timeout(BOUND_S):
        while not await left():
            await asyncio.sleep(0.01)
    assert len(pool.loader.members) == 1


async def test_a_stop_does_not_wait_for_a_load(pool: Served) -> None:
    pool.loader.gates["slow"] = threading.Event()
    client = await pool.client()
    loading = asyncio.create_task(client.load("slow"))
    await until(lambda: pool.loader.events.qsize() == 2, "the load to start")
    pool.stop.set()
    with pytest.raises(Refused) as refusal:
        await loading
    assert refusal.value.code == "cancelled"
    assert await pool.ended() == 0


async def test_it_ends_when_idle_and_not_with_a_connection_open(vary) -> None:  # type: ignore[no-untyped-def]
    async with vary(idle_timeout_s=0.3) as pool:
        client = await pool.client()
        done, _ = await asyncio.wait({pool.task}, timeout=0.9)
        assert not done, "an idle exit with a connection open"
        await client.aclose()
        assert await pool.ended() == 0
        assert not pool.socket.exists()
        events = [json.loads(line)["event"] for line in pool.options.log.read_text().splitlines()]
    assert events[-3:] == ["idle", "stopping", "stopped"]


async def test_a_model_that_is_refused_ends_the_start(vary) -> None:  # type: ignore[no-untyped-def]
    loader = FakeLoader()
    with pytest.raises(CannotStart, match="there is no model missing") as error:
        async with vary(loader, loads=(LoadSpec("fake"), LoadSpec("missing"))):
            pass
    assert error.value.exit_code == 1
    assert loader.members[0].closed.is_set()
