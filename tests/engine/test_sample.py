"""Sampling: pure functions over one row of logits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caldrix.engine.sample import choose, log_softmax, penalise
from caldrix.protocol.messages import Sampling

ROW = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))


def drawn(sampling: Sampling, row: np.ndarray = ROW, draws: int = 300) -> set[int]:
    random = np.random.default_rng(1)
    return {choose(row, sampling, random) for _ in range(draws)}


@pytest.mark.parametrize(
    ("sampling", "possible"),
    [
        (Sampling(), {0}),
        (Sampling(temperature=1.0), {0, 1, 2, 3}),
        (Sampling(temperature=1.0, top_k=2), {0, 1}),
        (Sampling(temperature=1.0, top_p=0.5), {0}),
        (Sampling(temperature=1.0, top_p=0.79), {0, 1}),
        (Sampling(temperature=1.0, min_p=0.2), {0, 1, 2}),
        (Sampling(temperature=0.01), {0}),
        (Sampling(temperature=5e-324), {0}),
        (Sampling(temperature=1.0, top_k=2**70), {0, 1, 2, 3}),
    ],
)
def test_what_can_be_drawn(sampling: Sampling, possible: set[int]) -> None:
    assert drawn(sampling) == possible


@given(st.integers(0, 2**32), st.floats(0.1, 5), st.integers(0, 4))
def test_a_masked_token_is_never_drawn(seed: int, temperature: float, top_k: int) -> None:
    row = np.array([-np.inf, 1.0, -np.inf, 0.0], dtype=np.float32)
    sampling = Sampling(temperature=temperature, top_k=top_k, seed=seed)
    assert choose(row, sampling, np.random.default_rng(seed)) in {1, 3}


def test_log_softmax_sums_to_one() -> None:
    assert np.exp(log_softmax(np.array([3.0, -np.inf, 1.0], np.float32))).sum() == pytest.approx(1.0)


def test_the_penalty_shrinks_what_was_said() -> None:
    row = np.array([2.0, -2.0, 1.0], np.float32)
    assert penalise(row, [0, 1], 2.0).tolist() == [1.0, -4.0, 1.0]
    assert penalise(row, [0, 1], 1.0) is row and row.tolist() == [2.0, -2.0, 1.0]
