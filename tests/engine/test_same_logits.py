"""The embedded model says the same however its rows came to stand: cold, stored, forked, in chunks, batched, drafted.

Its weights and activations are quantised, so logits move a little with the rows of a pass and with the cells in front;
the tolerance is what a cold run itself moves when other sequences stand beside it. Texts may part only where the
candidates lie within it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from caldrix.engine.api import ServingFlags
from caldrix.engine.jobs import Finished, Part, TextDelta
from caldrix.engine.member import LoadedMember, load_member
from caldrix.protocol.messages import Constraint, Json, Regex
from tests.engine.conftest import Run, start

pytestmark = pytest.mark.model
TOLERANCE = 0.7
"""In log-probability. 100 cells in front of a cold run moved its logits by up to 0.6 (engine notes of stage 2)."""
SYSTEM = Part("system", "You are a careful engineer. " + " ".join(f"Rule {i}: mind number {i}." for i in range(60)))
CODE = "def total(prices):\n    result = 0\n    for price in prices:\n        result += price\n    return result\n"
REPEAT = [
    Part("user", f"Repeat this file word by word, then stop.\n1\t{CODE.replace(chr(10), chr(10) + '2' + chr(9))}")
]
QUESTIONS = [[SYSTEM, Part("user", f"Question {number}: what is rule {number} about?")] for number in (3, 7, 12, 41)]
FILLER = [Part("user", "Nothing in common with the others, and long enough to be in the way. " * 6)]
OBJECT = Json(
    kind="Json",
    schema={
        "type": "object",
        "properties": {name: {"type": "string", "minLength": 60, "maxLength": 120} for name in ("old", "new")},
        "required": ["old", "new"],
        "additionalProperties": False,
    },
)


def load(**flags: int) -> LoadedMember:
    return load_member("smollm2-instruct", ServingFlags(window=4096, **flags), lambda *_: None, 0)


@pytest.fixture(scope="module")
def member() -> Iterator[LoadedMember]:
    loaded = load(max_batch=4)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def single() -> Iterator[LoadedMember]:
    """One at a time, with nothing kept but the last sequence."""
    loaded = load(max_batch=1, context_budget=0)
    yield loaded
    loaded.close()


def cold(single: LoadedMember, parts: list[Part], tokens: int = 24, constraint: Constraint | None = None) -> Finished:
    start(single, [Part("system", "x"), Part("user", "x")], tokens=1).finished()
    done = start(single, parts, tokens=tokens, constraint=constraint, logprobs=8).finished()
    assert done.usage.recomputed_from < 16, "the template's first tokens at the most"
    return done


def agree(reference: Finished, other: Finished) -> None:
    """The same tokens with about the same log-probabilities, up to where two candidates lie within the tolerance."""
    assert reference.logprobs is not None
    for place, (mine, theirs) in enumerate(zip(reference.ids, other.ids, strict=False)):
        line = reference.logprobs[place]
        if mine != theirs:
            tops = {top.token: top.logprob for top in line.top}
            assert theirs in tops and line.logprob - tops[theirs] < TOLERANCE, (place, line, theirs)
            return
        if other.logprobs is not None:
            assert abs(other.logprobs[place].logprob - line.logprob) < TOLERANCE, place
    assert len(reference.ids) == len(other.ids) and reference.finish == other.finish


def test_a_batch_of_four_and_forks_while_they_run(member: LoadedMember, single: LoadedMember) -> None:
    references = [cold(single, parts) for parts in QUESTIONS]
    runs = [start(member, QUESTIONS[0], tokens=24, logprobs=8)]
    runs[0].until(TextDelta)
    runs += [start(member, parts, tokens=24, logprobs=8) for parts in QUESTIONS[1:]]
    done = [run.finished() for run in runs]
    assert all(one.usage.recomputed_from > 300 for one in done[1:]), "forked from the one that was running"
    for reference, one in zip(references, done, strict=True):
        agree(reference, one)


def test_after_a_hit_in_the_store(member: LoadedMember, single: LoadedMember) -> None:
    reference = cold(single, QUESTIONS[0])
    start(member, FILLER, tokens=2).finished()
    hit = start(member, QUESTIONS[0], tokens=24, logprobs=8).finished()
    assert hit.usage.recomputed_from > 300
    agree(reference, hit)


def test_read_in_chunks_beside_one_that_decodes(member: LoadedMember, single: LoadedMember) -> None:
    long = [Part("user", "Say which word is repeated here. " + "lighthouse keeper " * 150)]
    reference = cold(single, long)
    running = start(member, FILLER, tokens=400, constraint=Regex(kind="Regex", pattern="[a-z ]{3000}"))
    running.until(TextDelta)
    chunked = start(member, long, tokens=24, logprobs=8)
    done = chunked.finished()
    running.job.cancel()
    running.finished()
    assert len(chunked.prefills) > 2
    agree(reference, done)


@pytest.mark.parametrize("constraint", [None, OBJECT], ids=["free", "json"])
def test_drafted_is_as_undrafted(member: LoadedMember, single: LoadedMember, constraint: Constraint | None) -> None:
    reference = cold(single, REPEAT, 80, constraint)
    drafted: Run = start(member, REPEAT, tokens=80, constraint=constraint)
    done = drafted.finished()
    assert done.usage.accepted_tokens <= done.usage.drafted_tokens
    assert drafted.streamed == done.text
    agree(reference, done)
