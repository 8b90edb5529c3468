"""The tiny models in llama.cpp, and what its memory does with each kind: what the prefix store builds on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from caldrix.engine.backend import Logits, Row
from caldrix.engine.llama import LlamaBackend, OpenOptions, opened
from tests.doubles.tiny_models import Kind, write_tiny

KINDS: tuple[Kind, ...] = get_args(Kind)
STATEFUL = ("recurrent", "hybrid", "convolution")
PROMPT = [100 + number * number % 151 for number in range(300)]
OTHER = [120 + number * 7 % 90 for number in range(60)]
CUT = 200
TOLERANCE = 2e-3
"""Cells of other sequences in front change the order of sums."""


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture(scope="module")
def backend(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaBackend]:
    path = write_tiny(tmp_path_factory.mktemp("tiny") / "m.gguf", kind)
    with opened(path, OpenOptions(threads=1, window=2048, batch=4)) as one:
        yield one


def decode(backend: LlamaBackend, tokens: Sequence[int], start: int = 0, sequence: int = 0) -> Logits:
    """The logits of the last row."""
    last = len(tokens) - 1
    return backend.decode([Row(token, start + place, sequence, place == last) for place, token in enumerate(tokens)])[0]


def cold(backend: LlamaBackend, tokens: Sequence[int]) -> Logits:
    for sequence in range(backend.facts.sequences):
        backend.clear(sequence)
    logits = decode(backend, tokens)
    backend.clear(0)
    return logits


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_arguments_write_the_same_small_file(kind: Kind, tmp_path: Path) -> None:
    first, again, other = (write_tiny(tmp_path / f"{n}.gguf", kind, seed=n // 2) for n in range(3))
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()
    assert first.stat().st_size < 2 << 20


def test_a_greedy_run_is_long_plain_and_depends_on_the_whole_prompt(backend: LlamaBackend) -> None:
    logits = cold(backend, PROMPT)
    order = np.sort(logits)
    assert np.isfinite(logits).all() and order[-1] - order[-2] > 0.05 and logits.std() > 1
    texts = [greedy(backend, prompt, 300) for prompt in (PROMPT, [PROMPT[0] + 1, *PROMPT[1:]])]
    pieces = [backend.vocabulary.pieces[token].decode("ascii") for token in texts[0]]
    assert len(set(texts[0])) > 20 and "".join(pieces).replace("\n", " ").isprintable()
    assert not set(texts[0]) & backend.vocabulary.end_of_generation
    assert texts[0] != texts[1]


def greedy(backend: LlamaBackend, prompt: Sequence[int], count: int) -> list[int]:
    backend.clear(0)
    logits, said = decode(backend, prompt), []
    for place in range(count):
        said.append(int(logits.argmax()))
        logits = decode(backend, said[-1:], len(prompt) + place)
    backend.clear(0)
    return said


@pytest.mark.parametrize("size", [17, 100, 256])
def test_passes_of_any_size_give_the_same_logits(backend: LlamaBackend, size: int) -> None:
    whole = cold(backend, PROMPT)
    for start in range(0, len(PROMPT), size):
        logits = decode(backend, PROMPT[start : start + size], start)
    assert np.abs(logits - whole).max() <= TOLERANCE


def test_a_cut_is_right_or_refused(backend: LlamaBackend, kind: Kind) -> None:
    """The first row after the cut: a longer redo hides what a wrong cut lost."""
    whole = cold(backend, PROMPT[: CUT + 1])
    decode(backend, [*PROMPT[:CUT], *OTHER])
    kept = backend.keep(0, CUT)
    assert kept == (kind not in STATEFUL)
    if kept:
        assert np.abs(decode(backend, PROMPT[CUT : CUT + 1], CUT) - whole).max() <= TOLERANCE


def test_a_copy_and_its_source_both_go_on(backend: LlamaBackend) -> None:
    whole = cold(backend, PROMPT)
    decode(backend, PROMPT[:CUT])
    backend.copy(0, 1)
    decode(backend, OTHER, CUT, 0)
    assert np.abs(decode(backend, PROMPT[CUT:], CUT, 1) - whole).max() <= TOLERANCE
    backend.clear(1)
    assert np.abs(cold(backend, PROMPT) - whole).max() <= TOLERANCE
