"""The memory formula, on shapes whose sizes are known."""

from __future__ import annotations

import pytest

from caldrix.models.fit import RUNTIME_BYTES, Shape, choose_window, default_budget, footprint

SMOLLM2 = Shape(96_576_768, 30, 9, 3, 64, 64, 576, 49_152, 8192)


def test_a_row_is_what_the_engine_notes_measured() -> None:
    assert SMOLLM2.row_bytes == 23_040


def test_the_footprint_grows_by_a_row_and_its_scores_a_cell() -> None:
    assert footprint(SMOLLM2, 1001) - footprint(SMOLLM2, 1000) == SMOLLM2.row_bytes + 256 * 4 * SMOLLM2.heads
    assert footprint(SMOLLM2, 0) > SMOLLM2.weights_bytes + RUNTIME_BYTES


@pytest.mark.parametrize(
    ("asked", "trained", "window"),
    [(None, 8192, 8192), (None, 131_072, 16_384), (4096, 8192, 4096), (50_000, 8192, 8192), (512, 0, 512)],
)
def test_the_window(asked: int | None, trained: int, window: int) -> None:
    shape = Shape(1, 1, 1, 1, 1, 1, 1, 1, trained)
    assert choose_window(shape, asked) == window


@pytest.mark.parametrize(("limit", "budget"), [(8 << 30, 2 << 30), (64 << 30, 8 << 30)])
def test_the_default_budget(limit: int, budget: int) -> None:
    assert default_budget(limit) == budget
