"""Tables of cases for the daemon's pure parts."""

from __future__ import annotations

import asyncio
import threading
from typing import Literal

import pytest

from caldrix.daemon.cancellation import Cancellation
from caldrix.daemon.edits import StoredSegment, apply_edits, cut_after, store
from caldrix.daemon.flags import parse_flags
from caldrix.daemon.members import Resident
from caldrix.daemon.names import NAME, slug, split_load
from caldrix.daemon.outbox import WAITING_FRAMES, Outbox, merge, to_frame
from caldrix.daemon.threads import in_daemon_thread, pulsed
from caldrix.engine.api import ServingFlags
from caldrix.protocol.errors import Refused
from caldrix.protocol.frames import MAX_FRAME_BYTES, decode
from caldrix.protocol.messages import (
    MAX_SEGMENTS,
    AppendEdit,
    ContextInfo,
    Delta,
    Edit,
    Message,
    Ok,
    PinEdit,
    Progress,
    Queued,
    RemoveEdit,
    ReplaceEdit,
    Segment,
    SegmentInfo,
)
from tests.daemon.fake_engine import FakeMember


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("smollm2-instruct", "smollm2-instruct"),
        ("/models/Qwen2.5-Coder.Q4_K_M.gguf", "qwen2.5-coder.q4_k_m"),
        ("hf:ORG/Repo-GGUF:Q4_0", "repo-gguf-q4_0"),
        ("hf:ORG/REPO/File.gguf", "file"),
        ("openai:http://host:1234/v1#My Model", "my-model"),
        ("/models/日本.gguf", "member"),
        ("a/", "a"),
        ("x" * 300, "x" * 128),
    ],
)
def test_slug(reference: str, name: str) -> None:
    assert slug(reference) == name and NAME.fullmatch(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ref", ("ref", None)),
        ("ref=main", ("ref", "main")),
        ("/a/b=c.gguf", ("/a/b=c.gguf", None)),
        ("/a/b=c.gguf=main", ("/a/b=c.gguf", "main")),
        ("ref=", ("ref=", None)),
        ("=main", ("=main", None)),
        ("openai:http://h/v1?a=b#m", ("openai:http://h/v1?a=b#m", None)),
    ],
)
def test_split_load(text: str, expected: tuple[str, str | None]) -> None:
    assert split_load(text) == expected


def test_flags_lie_over_the_pools_own() -> None:
    base = ServingFlags(window=100, threads=2, memory_limit=5)
    given = parse_flags(["--window=200", "--context-budget", "2G", "--max-batch", "3"], base)
    assert given == ServingFlags(window=200, threads=2, context_budget=2 << 30, memory_limit=5, max_batch=3)


@pytest.mark.parametrize(
    "words",
    [
        ["--window", "0"],
        ["--window"],
        ["extra"],
        ["--context-budget", "1X"],
        ["--thr", "1"],
        ["--threads", "513"],
        ["-h"],
    ],
)
def test_wrong_flags_are_a_sentence(words: list[str]) -> None:
    with pytest.raises(Refused, match="flags: "):
        parse_flags(words, ServingFlags())


def test_a_member_cannot_be_given_more_memory_than_the_pool() -> None:
    pool = ServingFlags(memory_limit=1000)
    assert parse_flags(["--memory-limit", "2000"], pool).memory_limit == 1000
    assert parse_flags(["--memory-limit", "500"], pool).memory_limit == 500
    assert parse_flags(["--memory-limit", "500"], ServingFlags()).memory_limit == 500


def stored(name: str, text: str = "t", ids: tuple[int, ...] | None = None) -> StoredSegment:
    return StoredSegment(name, "user", text, False, ids)


def segment(name: str) -> Segment:
    return Segment(id=name, role="user", text="t")


BASE = (stored("a"), stored("b", ids=(1, 2)))


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ([], BASE),
        ([AppendEdit(op="append", segment=segment("c"))], (*BASE, stored("c"))),
        ([ReplaceEdit(op="replace", id="b", text="t")], BASE),
        ([ReplaceEdit(op="replace", id="b", text="new")], (BASE[0], stored("b", "new"))),
        ([RemoveEdit(op="remove", id="a"), AppendEdit(op="append", segment=segment("a"))], (BASE[1], stored("a"))),
        ([PinEdit(op="pin", id="b", pinned=True)], (BASE[0], StoredSegment("b", "user", "t", True, (1, 2)))),
    ],
)
def test_edits(edits: list[Edit], expected: tuple[StoredSegment, ...]) -> None:
    assert apply_edits(BASE, edits) == expected


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        ([AppendEdit(op="append", segment=segment("a"))], "duplicate_segment"),
        ([AppendEdit(op="append", segment=segment("taken"))], "duplicate_segment"),
        ([ReplaceEdit(op="replace", id="z", text="")], "unknown_segment"),
        ([RemoveEdit(op="remove", id="a"), PinEdit(op="pin", id="a", pinned=True)], "unknown_segment"),
    ],
)
def test_refused_edits(edits: list[Edit], code: str) -> None:
    with pytest.raises(Refused) as refusal:
        apply_edits(BASE, edits, {"taken"})
    assert refusal.value.code == code


def test_a_context_cannot_grow_for_ever() -> None:
    full = tuple(stored(f"s{number}") for number in range(MAX_SEGMENTS))
    with pytest.raises(Refused, match=str(MAX_SEGMENTS)):
        apply_edits(full, [AppendEdit(op="append", segment=segment("one more"))])
    assert len(apply_edits(full, [RemoveEdit(op="remove", id="s0")])) == MAX_SEGMENTS - 1


def test_a_new_context_needs_unique_ids() -> None:
    assert store([segment("a"), segment("b")]) == (stored("a"), stored("b"))
    with pytest.raises(Refused):
        store([segment("a"), segment("a")])
    assert cut_after(BASE, None) == BASE and cut_after(BASE, "a") == BASE[:1]


def delta(text: str, tokens: int, forced: int) -> Delta:
    return Delta(id=1, text=text, tokens=tokens, forced=forced)


def loading(phase: Literal["download", "load"], done: int) -> Progress:
    return Progress(id=1, phase=phase, done=done, total=2)


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        (delta("a", 1, 0), delta("b", 2, 1), delta("ab", 3, 1)),
        (Queued(id=1, position=2), Queued(id=1, position=1), Queued(id=1, position=1)),
        (loading("load", 1), loading("load", 2), loading("load", 2)),
        (loading("download", 2), loading("load", 0), None),
        (Queued(id=1, position=0), loading("load", 0), None),
        (delta("a", 1, 0), Ok(id=1), None),
    ],
)
def test_merging_frames(older: Message, newer: Message, expected: Message | None) -> None:
    assert merge(older, newer) == expected


def test_an_answer_that_no_frame_holds_becomes_an_error() -> None:
    info = SegmentInfo(id="a", role="user", pinned=False, tokens=1, text="x" * MAX_FRAME_BYTES)
    big = ContextInfo(id=7, context="c", member="m", version=1, window=1, tokens=1, segments=[info])
    reply = decode(to_frame(big, "cbor")[4:], "cbor")
    assert (reply["type"], reply["id"], reply["code"]) == ("Error", 7, "bad_request")


class Pipe:
    """The writing end of a connection whose reader reads when it is told to."""

    def __init__(self) -> None:
        self.written: list[dict[str, object]] = []
        self.open = asyncio.Event()
        self.writing = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.written.append(decode(data[4:], "cbor"))
        self.writing.set()

    async def drain(self) -> None:
        await self.open.wait()


async def test_the_outbox_merges_while_the_socket_is_full_and_keeps_the_order() -> None:
    outbox, pipe = Outbox(), Pipe()
    sending = asyncio.create_task(outbox.run(pipe, lambda: "cbor"))  # type: ignore[arg-type]
    outbox.put(Queued(id=1, position=0))
    await asyncio.wait_for(pipe.writing.wait(), 5)
    for letter in "abc":
        outbox.put(Delta(id=1, text=letter, tokens=1, forced=0))
        outbox.put(Delta(id=2, text=letter.upper(), tokens=1, forced=0))
    outbox.put(Ok(id=1))
    assert not await outbox.flush(0.01)
    pipe.open.set()
    assert await outbox.flush(5)
    assert [(frame["id"], frame.get("text")) for frame in pipe.written] == [
        (1, None),
        (1, "abc"),
        (2, "ABC"),
        (1, None),
    ]
    sending.cancel()
    await asyncio.wait({sending})


async def test_a_full_outbox_holds_its_reader_back() -> None:
    outbox = Outbox()
    for number in range(WAITING_FRAMES):
        outbox.put(Ok(id=number))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(outbox.room(), 0.01)
    outbox.discard()
    await asyncio.wait_for(outbox.room(), 5)


def test_a_cancellation_calls_each_callback_once() -> None:
    calls: list[str] = []
    cancellation = Cancellation()
    cancellation.on_cancel(lambda: calls.append("early"))
    cancellation.cancel()
    cancellation.cancel()
    cancellation.on_cancel(lambda: calls.append("late"))
    assert calls == ["early", "late"] and cancellation.cancelled


async def test_pulses_stop_with_the_work() -> None:
    beats: list[int] = []
    gate = asyncio.Event()

    def beat() -> None:
        beats.append(1)
        if len(beats) == 3:
            gate.set()

    assert await pulsed(gate.wait(), beat, first=0.001, every=0.001) is True
    assert len(beats) == 3


async def test_a_thread_gives_its_result_or_its_error() -> None:
    assert await in_daemon_thread(threading.current_thread, "mine") is not threading.main_thread()
    with pytest.raises(ZeroDivisionError):
        await in_daemon_thread(lambda: 1 // 0, "mine")


async def test_a_member_is_freed_after_its_last_user() -> None:
    member = FakeMember()
    resident = Resident("m", "r", member, 10)
    cancellation = Cancellation()
    with resident.in_use(), resident.in_use(cancellation):
        freeing = asyncio.create_task(resident.free())
        done, _ = await asyncio.wait({freeing}, timeout=0.05)
        assert not done and cancellation.cancelled and not member.closed.is_set()
    await asyncio.wait_for(freeing, 5)
    assert member.closed.is_set()
