"""Rows of a sliding-window model that its own sequence sees no more are still wanted: for a cut, a fork, a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from caldrix.engine.backend import Row
from caldrix.engine.llama import LlamaBackend, OpenOptions
from caldrix.engine.llama_model import LlamaModel
from tests.doubles.tiny_models import write_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "sliding.gguf", "sliding")


@contextmanager
def opened(model: Path) -> Iterator[LlamaBackend]:
    backend = LlamaBackend(LlamaModel(model), "sliding", OpenOptions(1, 600, batch=4))
    try:
        yield backend
    finally:
        backend.close()


def tokens(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(40, 120, count).tolist()


def fill(backend: LlamaBackend, sequence: int, ids: list[int], start: int = 0) -> np.ndarray:
    """Compute rows; gives the last one's logits."""
    for offset in range(0, len(ids), 100):
        part = ids[offset : offset + 100]
        logits = backend.decode(
            [Row(token, start + offset + at, sequence, at == len(part) - 1) for at, token in enumerate(part)]
        )
    return logits[-1]


def crowd(backend: LlamaBackend) -> None:
    """Rows come and go on both sides of sequence 0, until the search for free cells begins at its first ones."""
    fill(backend, 2, tokens(5, 100))
    fill(backend, 0, tokens(1, 300))
    fill(backend, 1, tokens(2, 300))
    backend.clear(2)
    fill(backend, 2, tokens(6, 100))
    assert backend.keep(1, 200)
    fill(backend, 2, tokens(7, 100), 100)


def test_a_cut_has_its_rows(model: Path) -> None:
    with opened(model) as backend:
        crowd(backend)
        assert backend.keep(0, 100)
        warm = fill(backend, 0, tokens(9, 1), 100)
    with opened(model) as backend:
        fill(backend, 0, tokens(1, 100))
        assert warm == pytest.approx(fill(backend, 0, tokens(9, 1), 100), abs=1e-3)


def test_a_saved_piece_has_its_rows(model: Path) -> None:
    with opened(model) as backend:
        crowd(backend)
        size = backend.facts.block_rows
        crowded = [len(backend.save(0, start, start + size)) for start in range(0, 128, size)]
    with opened(model) as backend:
        fill(backend, 0, tokens(1, 300))
        assert crowded == [len(backend.save(0, start, start + size)) for start in range(0, 128, size)]
