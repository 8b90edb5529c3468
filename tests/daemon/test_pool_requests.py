"""Requests of one client, on the wire, over an engine without a model."""

from __future__ import annotations

import json

import pytest

from caldrix.client.client import PoolClient
from caldrix.daemon import contexts
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import (
    MAX_SEGMENTS,
    Append,
    AppendEdit,
    ContextCreate,
    Delta,
    Done,
    Json,
    Message,
    PinEdit,
    Progress,
    Queued,
    RemoveEdit,
    ReplaceEdit,
    Segment,
)
from tests.daemon.daemon_pool import Served


def user(name: str, text: str) -> Segment:
    return Segment(id=name, role="user", text=text)


async def _asked(client: PoolClient, request: Message) -> object:
    connection = client._connection
    with connection.replies(request.id) as replies:
        await connection.send(request, 20.0)
        return await replies.next(20.0)


async def context(client: PoolClient, text: str) -> str:
    return (await client.create("main", [user("u", text)])).context


async def generate(client: PoolClient, name: str, limit: int = 100, **options: object) -> tuple[Done, list[object]]:
    frames = [frame async for frame in client.generate(name, limit, **options)]  # type: ignore[arg-type]
    assert isinstance(frames[-1], Done)
    return frames[-1], frames[:-1]


async def refused(awaitable: object, code: str) -> Refused:
    with pytest.raises(Refused) as caught:
        await awaitable  # type: ignore[misc]
    assert caught.value.code == code, caught.value
    return caught.value


@pytest.mark.parametrize("fmt", ["cbor", "json"])
async def test_a_generation_streams_and_is_appended(pool: Served, fmt: str) -> None:
    client = await pool.client(fmt=fmt)
    name = await context(client, "say hello")
    done, stream = await generate(client, name, append=Append(id="a", pinned=True))
    assert isinstance(stream[0], Queued | Progress)
    assert "".join(frame.text for frame in stream if isinstance(frame, Delta)) == done.text == "hello"
    assert done.finish == "stop" and done.segment is not None and done.context_version == 2
    assert (done.segment.id, done.segment.role, done.segment.pinned, done.segment.tokens) == ("a", "assistant", True, 5)
    shown = await client.show(name, text=True)
    assert [(segment.id, segment.text) for segment in shown.segments] == [("u", "say hello"), ("a", "hello")]
    assert shown.version == 2
    assert pool.member.remembered == {"hello": tuple(1000 + byte for byte in b"hello")}


async def test_an_output_keeps_its_ids_until_its_text_changes(pool: Served) -> None:
    client = await pool.client()
    name = await context(client, "say hi")
    await generate(client, name, append=Append(id="a"))
    ids = (1000 + ord("h"), 1000 + ord("i"))
    await client.edit(name, [PinEdit(op="pin", id="a", pinned=True), ReplaceEdit(op="replace", id="a", text="hi")])
    assert pool.member.rendered[-1][1].ids == ids
    fork = await client.fork(name)
    assert pool.member.rendered[-1][1].ids == ids and fork.version == 1
    await client.edit(name, [ReplaceEdit(op="replace", id="a", text="ho")])
    assert pool.member.rendered[-1][1].ids is None


@pytest.mark.parametrize(
    ("text", "limit", "constraint", "finish", "appended"),
    [
        ("say done", 100, None, "stop", True),
        ("say done", 2, None, "length", True),
        ("say done", 2, Json(kind="Json", schema_={}), "length", False),
        ("say done", 100, Json(kind="Json", schema_={}), "stop", True),
    ],
)
async def test_what_is_appended(
    pool: Served, text: str, limit: int, constraint: Json | None, finish: str, appended: bool
) -> None:
    client = await pool.client()
    name = await context(client, text)
    done, _ = await generate(client, name, limit, constraint=constraint, append=Append(id="a"))
    assert done.finish == finish
    assert (done.segment is not None) is appended and (done.context_version == 2) is appended
    assert len((await client.show(name)).segments) == 1 + appended


async def test_a_context_is_edited_forked_and_dropped(pool: Served) -> None:
    client = await pool.client()
    made = await client.create("main", [user("a", "one"), user("b", "three")])
    assert [segment.tokens for segment in made.segments] == [3, 5]
    assert (made.tokens, made.version, made.window) == (9, 1, 4096)
    edits = [AppendEdit(op="append", segment=user("c", "x")), RemoveEdit(op="remove", id="a")]
    edited = await client.edit(made.context, edits, version=1)
    assert edited.version == 2 and [segment.id for segment in edited.segments] == ["b", "c"]
    stale = await refused(client.edit(made.context, edits, version=1), "stale_version")
    assert stale.detail == {"version": 2} and "2" in stale.message
    fork = await client.fork(made.context, until="b")
    assert [segment.id for segment in fork.segments] == ["b"] and fork.context != made.context
    await refused(client.fork(made.context, until="zz"), "unknown_segment")
    await client.drop(fork.context)
    await refused(client.show(fork.context), "unknown_context")
    assert (await client.status()).contexts == 1


async def test_a_refused_edit_changes_nothing(pool: Served) -> None:
    client = await pool.client()
    made = await client.create("main", [user("a", "one")])
    for edit in (
        [AppendEdit(op="append", segment=user("b", "x")), RemoveEdit(op="remove", id="missing")],
        [AppendEdit(op="append", segment=user("b", "refuse"))],
        [AppendEdit(op="append", segment=user("b", "break"))],
    ):
        with pytest.raises(Refused):
            await client.edit(made.context, edit)
    shown = await client.show(made.context)
    assert shown.version == 1 and [segment.id for segment in shown.segments] == ["a"]


async def test_a_prompt_past_the_window_is_refused_with_numbers(pool: Served) -> None:
    client = await pool.client()
    name = await context(client, "w" * 5000)
    refusal = await refused(generate(client, name), "window_exceeded")
    assert "5001" in refusal.message and "4096" in refusal.message
    assert refusal.detail == {"tokens": 5001, "window": 4096}


async def test_a_limit_beyond_the_room_is_cut_to_it(pool: Served) -> None:
    client = await pool.client()
    name = await context(client, "w" * 4080 + "say " + "z" * 9)
    done, _ = await generate(client, name, 10_000)
    assert done.finish == "length" and done.usage.prompt_tokens + done.usage.completion_tokens == 4096


@pytest.mark.parametrize(
    ("extras", "code"),
    [
        ({"append": Append(id="u")}, "duplicate_segment"),
        ({"constraint": Json(kind="Json", schema_={"type": "nope"})}, "constraint_invalid"),
        ({"constraint": Json(kind="Json", schema_={"const": float("nan")})}, "constraint_invalid"),
    ],
)
async def test_refusals_before_generating(pool: Served, extras: dict[str, object], code: str) -> None:
    client = await pool.client()
    name = await context(client, "say hello")
    await refused(generate(client, name, **extras), code)
    assert not pool.member.started.is_set()


async def test_an_engine_failure_is_one_error(pool: Served) -> None:
    client = await pool.client()
    refusal = await refused(generate(client, await context(client, "fail")), "engine_failed")
    assert refusal.message == "the engine broke"
    assert (await generate(client, await context(client, "say ok")))[0].text == "ok"


async def test_an_unforeseen_error_is_a_sentence_and_the_log_holds_its_place_only(pool: Served) -> None:
    client = await pool.client()
    refusal = await refused(client.create("main", [user("a", "break")]), "engine_failed")
    assert "KeyError" in refusal.message and "secret" not in refusal.message
    assert (await client.status()).contexts == 0
    pool.stop.set()
    await pool.ended()
    log = pool.options.log.read_text()  # type: ignore[union-attr]
    assert "fake_engine.py" in log and "secret" not in log


async def test_a_panic_of_native_code_is_an_error_like_any_other(pool: Served) -> None:
    """Found by fuzzing: it is no Exception, and ended the pool."""
    client = await pool.client()
    refusal = await refused(client.create("main", [user("a", "panic")]), "engine_failed")
    assert "PanicException" in refusal.message and "secret" not in refusal.message
    assert (await generate(client, await context(client, "say ok")))[0].text == "ok"


@pytest.mark.parametrize("log_text", [False, True])
async def test_the_log_has_a_line_for_each_request(vary, log_text: bool) -> None:  # type: ignore[no-untyped-def]
    async with vary(log_text=log_text) as pool:
        client = await pool.client("someone")
        name = await context(client, "say hush")
        await generate(client, name, append=Append(id="a"))
        await refused(client.drop("nothing"), "unknown_context")
        pool.stop.set()
        await pool.ended()
        text = pool.options.log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    create, run, drop = (line for line in lines if line["event"] == "request")
    assert create["type"] == "ContextCreate" and create["client_id"] == "someone" and create["member"] == "main"
    assert run["outcome"] == "stop" and run["context"] == name and run["completion_tokens"] == 4
    assert {"at", "id", "client", "duration_ms", "prefill_ms", "decode_ms", "queued_ms", "recomputed_from"} <= set(run)
    assert drop["outcome"] == "unknown_context"
    assert ("hush" in text) is log_text


async def test_lone_surrogates_arrive_as_escapes(pool: Served) -> None:
    for fmt in ("cbor", "json"):
        client = await pool.client(fmt=fmt)
        name = await context(client, "a\udc80b")
        assert (await client.show(name, text=True)).segments[0].text == "a\\udc80b"


async def test_the_contexts_of_all_clients_are_bounded_together(pool: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "ID_BYTES", 0)
    monkeypatch.setattr(contexts, "MAX_HELD_BYTES", 2 * contexts.SEGMENT_BYTES + 3000)
    one, two = await pool.client("one"), await pool.client("two")
    held = await context(one, "say " + "x" * 2000)
    error = await refused(two.create("main", [user("u", "y" * 2000)]), "memory")
    assert error.detail is not None and error.detail["limit_bytes"] == contexts.MAX_HELD_BYTES
    grown = ReplaceEdit(op="replace", id="u", text="z" * 4000)
    await refused(one.edit(held, [grown]), "memory")
    await one.edit(held, [ReplaceEdit(op="replace", id="u", text="short")])
    await context(two, "y" * 2000)


async def test_what_contexts_hold_counts_their_token_ids(pool: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take many times what the text does; a dropped context gives all of it back, a shorter one its part."""
    client = await pool.client()
    monkeypatch.setattr(contexts, "MAX_HELD_BYTES", 100 * contexts.ID_BYTES + contexts.SEGMENT_BYTES + 99)
    await refused(client.create("main", [user("u", "x" * 100)]), "memory")
    for _ in range(3):
        held = await context(client, "x" * 90)
        await refused(client.create("main", [user("u", "y" * 20)]), "memory")
        grown = ReplaceEdit(op="replace", id="u", text="z" * 100)
        await refused(client.edit(held, [grown]), "memory")
        assert (await client.show(held)).version == 1
        await client.edit(held, [ReplaceEdit(op="replace", id="u", text="z" * 10)])
        await client.edit(held, [ReplaceEdit(op="replace", id="u", text="z" * 90)])
        await client.drop(held)


@pytest.mark.parametrize("fmt", ["cbor", "json"])
async def test_too_many_segments_are_refused_with_the_number(pool: Served, fmt: str) -> None:
    client = await pool.client(fmt=fmt)
    segments = [Segment.model_construct(id=f"s{number}", role="user", text="") for number in range(MAX_SEGMENTS + 1)]
    request = ContextCreate.model_construct(
        type="ContextCreate", id=client._connection.new_id(), member="main", segments=segments
    )
    error = await refused(_asked(client, request), "bad_request")
    assert str(MAX_SEGMENTS) in error.message
    assert (await client.status()).contexts == 0
