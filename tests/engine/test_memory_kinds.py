"""Tiny models of each kind of memory: however a prompt's rows came to stand, its logits are a cold run's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from caldrix.engine.backend import MIN_PASS_ROWS
from caldrix.engine.jobs import Finished, Part, TextDelta
from caldrix.engine.llama import LlamaBackend, OpenOptions
from caldrix.engine.llama_model import LlamaModel
from caldrix.engine.member import LoadedMember, Serving
from caldrix.engine.rates import Rates
from caldrix.protocol.messages import Json, OneOf
from tests.doubles.tiny_models import Kind, write_tiny
from tests.engine.conftest import Run, start

ROWS: list[Kind] = ["attention", "experts", "sliding"]
STATES: list[Kind] = ["recurrent", "hybrid", "convolution"]
TOLERANCE = 1e-3
BESIDE = 1e-2
"""Beside others a pass has other rows and the cache other cells, which round otherwise; keys of 16 bits make the most
of it. A row that is missing or wrong moves these models by 0.05 and more."""
TOKENS = 12
SHARED = "All of them begin with these words, which are many enough to be worth a piece. " * 5
PROMPTS = [[Part("system", SHARED), Part("user", f"{number} " * (40 + 9 * number))] for number in range(4)]


@pytest.fixture(scope="module", params=[*ROWS, *STATES])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Kind, Path]:
    kind: Kind = request.param
    return kind, write_tiny(tmp_path_factory.mktemp("tiny") / f"{kind}.gguf", kind)


@contextmanager
def serving(path: Path, *, budget: int = 1 << 26, batch: int = 4, window: int = 2048) -> Iterator[LoadedMember]:
    backend = LlamaBackend(LlamaModel(path), path.stem, OpenOptions(1, window, batch=batch))
    member = LoadedMember(backend, Serving(budget, batch))
    try:
        yield member
    finally:
        member.close()


@pytest.fixture(scope="module")
def cold(model: tuple[Kind, Path]) -> list[Finished]:
    """Each prompt alone, on a member that has seen nothing."""
    done = []
    for parts in PROMPTS:
        with serving(model[1], batch=1) as member:
            done.append(told(member, parts).finished())
            assert done[-1].usage.recomputed_from == 0
    assert len({one.text for one in done}) == len(done), "the prompts matter"
    return done


def told(member: LoadedMember, parts: list[Part], tokens: int = TOKENS) -> Run:
    return start(member, parts, tokens=tokens, logprobs=5)


def same(one: Finished, other: Finished, tolerance: float = TOLERANCE) -> None:
    """The same greedy text, and for each token the same five likeliest at the same log-probabilities."""
    assert one.text == other.text and one.ids == other.ids
    assert one.logprobs and other.logprobs
    for mine, its in zip(one.logprobs, other.logprobs, strict=True):
        assert mine.logprob == pytest.approx(its.logprob, abs=tolerance)
        values = [[entry.logprob for entry in line.top] for line in (mine, its)]
        assert values[0] == pytest.approx(values[1], abs=tolerance)


def least(kind: Kind, done: Finished) -> int:
    """Where the same prompt is resumed that the member has answered before."""
    return done.usage.prompt_tokens - (MIN_PASS_ROWS if kind in ROWS else 1)


def test_a_store_hit(model: tuple[Kind, Path], cold: list[Finished]) -> None:
    """Each other prompt sends the one before it to the store."""
    kind, path = model
    with serving(path, batch=1) as member:
        for parts in PROMPTS:
            told(member, parts, tokens=2).finished()
        hits = member.status("m").store.hits
        for parts, alone in zip(PROMPTS[:3], cold, strict=False):
            again = told(member, parts).finished()
            same(again, alone)
            if kind in ROWS:
                assert again.usage.recomputed_from == least(kind, again)
        if kind in ROWS:
            assert member.status("m").store.hits == hits + 3


def test_a_store_hit_of_one_that_goes_on(model: tuple[Kind, Path]) -> None:
    """A state serves what it begins: the next turn of the same conversation, after others came between."""
    _, path = model

    def turn(member: LoadedMember) -> tuple[list[Part], Finished]:
        first = told(member, PROMPTS[0]).finished()
        member.remember(first.text, first.ids)
        return [*PROMPTS[0], Part("assistant", first.text), Part("user", "and then what? " * 3)], first

    with serving(path, batch=1) as member:
        more, first = turn(member)
        told(member, PROMPTS[2]).finished()
        second = told(member, more).finished()
        assert second.usage.recomputed_from >= first.usage.prompt_tokens + len(first.ids) - 1
    with serving(path, batch=1, budget=0) as member:
        member.remember(first.text, first.ids)
        alone = told(member, more).finished()
        assert alone.usage.recomputed_from == 0
    same(second, alone)


def test_a_fork_while_the_parent_runs(model: tuple[Kind, Path], cold: list[Finished]) -> None:
    kind, path = model
    with serving(path) as member:
        parent = told(member, PROMPTS[0], tokens=400)
        parent.until(TextDelta)
        child = told(member, PROMPTS[1]).finished()
        twin = told(member, PROMPTS[0]).finished()
        parent.job.cancel()
        done = parent.finished()
        assert done.ids[:TOKENS] == cold[0].ids[: len(done.ids)]
    same(child, cold[1], BESIDE)
    same(twin, cold[0], BESIDE)
    if kind in ROWS:
        assert child.usage.recomputed_from > 200 and twin.usage.recomputed_from == least(kind, twin)


@pytest.mark.parametrize("rows", [32, 97])
def test_a_chunked_prefill(
    model: tuple[Kind, Path], cold: list[Finished], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chunk(rates: Rates, remaining: int, *, shared: bool = False) -> int:
        return remaining if remaining < rows + MIN_PASS_ROWS else rows

    monkeypatch.setattr(Rates, "chunk", chunk)
    with serving(model[1]) as member:
        run = told(member, PROMPTS[3])
        same(run.finished(), cold[3])
        assert len(run.prefills) > cold[3].usage.prompt_tokens // rows


def test_a_batch_of_four(model: tuple[Kind, Path], cold: list[Finished]) -> None:
    with serving(model[1]) as member:
        runs = [told(member, parts) for parts in PROMPTS]
        for run, alone in zip(runs, cold, strict=True):
            same(run.finished(), alone, BESIDE)


def test_a_small_cache_sets_aside_and_goes_on(model: tuple[Kind, Path], cold: list[Finished]) -> None:
    with serving(model[1], window=600) as member:
        runs = [told(member, parts, tokens=60) for parts in PROMPTS]
        for run, alone in zip(runs, cold, strict=True):
            done = run.finished()
            assert done.ids[:TOKENS] == alone.ids and len(done.ids) == 60


def test_a_draft_changes_nothing(model: tuple[Kind, Path], cold: list[Finished]) -> None:
    """Random weights repeat themselves, and a prompt that holds what they will say makes guesses come true."""
    kind, path = model
    schema = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 90}}, "required": ["text"]}
    drafted = 0
    with serving(path) as member:
        for parts in PROMPTS:
            said = start(member, parts, tokens=100, draft=False).finished().text
            held = [*parts, Part("user", f"Say this: {said}")]
            for constraint in (None, Json(kind="Json", schema=schema)):
                runs = [start(member, held, tokens=100, constraint=constraint, draft=draft) for draft in (False, True)]
                plain, quick = (run.finished() for run in runs)
                assert (plain.ids, plain.finish) == (quick.ids, quick.finish)
                assert plain.usage.drafted_tokens == 0
                assert plain.usage.forced_tokens == quick.usage.forced_tokens
                assert quick.usage.accepted_tokens <= quick.usage.drafted_tokens
                drafted += quick.usage.drafted_tokens
    assert kind in ROWS or not drafted, "a state cannot be cut, so nothing is guessed"


def test_scores_beside_others_are_those_of_a_cold_run(model: tuple[Kind, Path]) -> None:
    options = ["first option", "second option of more words", "third"]

    def choose(member: LoadedMember) -> list[float]:
        run = start(member, PROMPTS[1], tokens=40, constraint=OneOf(kind="OneOf", options=options))
        done = run.finished()
        assert done.choice is not None and done.text == done.choice.option
        return [score.logprob for score in done.choice.scores]

    with serving(model[1], batch=1) as member:
        alone = choose(member)
    with serving(model[1]) as member:
        others = [told(member, PROMPTS[place], tokens=300) for place in (0, 2)]
        for other in others:
            other.until(TextDelta)
        assert choose(member) == pytest.approx(alone, abs=BESIDE)
        assert choose(member) == pytest.approx(alone, abs=BESIDE)
        for other in others:
            other.job.cancel()
            other.finished()


@pytest.mark.parametrize("model", STATES, indirect=True)
def test_a_state_is_saved_where_a_family_of_prompts_parts(model: tuple[Kind, Path]) -> None:
    """The first tells nothing, the second where they part, the third resumes there."""
    family = [[Part("system", SHARED), Part("user", f"{name} question, " * 4)] for name in ("One", "Two", "Six", "Ten")]
    with serving(model[1], batch=1) as member:
        done = [told(member, parts).finished() for parts in family]
        assert done[0].usage.recomputed_from == done[1].usage.recomputed_from == 0
        assert done[2].usage.recomputed_from == done[3].usage.recomputed_from > 200
    for parts, warm in zip(family[2:], done[2:], strict=True):
        with serving(model[1], batch=1) as member:
            same(warm, told(member, parts).finished())
