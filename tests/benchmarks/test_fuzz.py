"""What the fuzzer sends is repeatable, broken as it says, and no wish to stop; what it calls growth is some."""

from __future__ import annotations

import json
from random import Random

import cbor2
import pytest

from benchmarks.fuzz.messages import NEVER, mutated, requests
from benchmarks.fuzz.streams import body_of, conversation, framed, spoiled, spoiled_message, with_doubled_key
from benchmarks.fuzz.watch import Sample, growth
from caldrix.daemon.parsing import parse
from caldrix.protocol.errors import BadFrame, Refused
from caldrix.protocol.frames import MAX_FRAME_BYTES, Format, Framer, decode

SEEDS = range(60)
MIB = 1 << 20


@pytest.mark.parametrize("fmt", ["cbor", "json"])
def test_the_same_seed_sends_the_same_bytes(fmt: Format) -> None:
    def sent(seed: int) -> bytes:
        random = Random(seed)
        one, two = (conversation(random, "a", fmt) for _ in range(2))
        return spoiled(random, one, two) + spoiled_message(random, requests(random, "x")[-1], fmt)

    assert [sent(seed) for seed in range(20)] == [sent(seed) for seed in range(20)]
    assert len({sent(seed) for seed in range(20)}) == 20


@pytest.mark.parametrize("fmt", ["cbor", "json"])
def test_what_is_valid_is_parsed(fmt: Format) -> None:
    for seed in SEEDS:
        for request in requests(Random(seed), "x"):
            parse(decode(body_of({**request, "id": 1}, fmt), fmt))
        framer, stream = Framer(), conversation(Random(seed), "a", fmt)
        framer.feed(stream)
        assert parse(decode(framer.next_body() or b"", fmt)).type == "Hello"


def test_faults_are_of_many_kinds_and_none_is_a_wish_to_stop() -> None:
    ends = set()
    for seed in SEEDS:
        for request in requests(Random(seed), "x"):
            message = mutated(Random(seed), request)
            assert message.get("type") not in NEVER
            try:
                parse(decode(body_of({"id": 1, **message}, "cbor"), "cbor"))
                ends.add("parsed")
            except BadFrame:
                ends.add("bad frame")
            except Refused:
                ends.add("refused")
    assert ends == {"parsed", "bad frame", "refused"}


def test_no_message_outgrows_a_frame() -> None:
    """Seeds under which lists of lists are repeated again and again are few: many are tried."""
    for seed in range(4_000):
        random = Random(seed)
        message = mutated(random, requests(random, "x")[seed % 9])
        if seed % 8 == 0:
            assert len(body_of(message, "cbor")) < MAX_FRAME_BYTES


def test_a_doubled_key_is_one_in_both_formats() -> None:
    message = {"type": "PoolStatus", "id": 1}
    for fmt in ("cbor", "json"):
        with pytest.raises(BadFrame, match=r"twice|uplicate"):
            decode(with_doubled_key(Random(1), message, fmt), fmt)  # type: ignore[arg-type]
    assert cbor2.loads(body_of(message, "cbor")) == json.loads(body_of(message, "json")) == message
    assert framed(b"ab") == b"\0\0\0\2ab"


@pytest.mark.parametrize(
    ("more_bytes", "more_handles", "grown"),
    [
        (0, 0, []),
        (3 * MIB, 2, []),
        (-50 * MIB, -5, []),
        (40 * MIB, 0, ["resident bytes"]),
        (0, 30, ["file descriptors", "threads"]),
    ],
    ids=["flat", "a-few-mib", "less", "a-leak", "handles"],
)
def test_growth_is_told_by_what_grew(more_bytes: int, more_handles: int, grown: list[str]) -> None:
    first, last = (
        Sample(100, 400 * MIB, 20, 10),
        Sample(600, 400 * MIB + more_bytes, 20 + more_handles, 10 + more_handles),
    )
    found = growth([first, Sample(300, 900 * MIB, 90, 90), last])
    assert [fault.partition(" grew")[0] for fault in found] == grown
    assert growth([last]) == growth([]) == []
