"""The memory formula, on shapes whose sizes are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caldrix.models.fit import RUNTIME_BYTES, FootprintUnknown, Shape, choose_window, default_budget, footprint

SMOLLM2 = Shape(96_576_768, 30, 9, 3, 64, 64, 576, 49_152, 8192)


def test_a_row_is_what_the_engine_notes_measured() -> None:
    assert SMOLLM2.row_bytes == 23_040


def test_the_footprint_grows_by_a_row_and_its_scores_a_cell() -> None:
    """A cell is a row, its mask, and its scores in 32 and in 16 bits; cells come in blocks of 256."""
    larger, smaller = footprint(SMOLLM2, 16_384), footprint(SMOLLM2, 16_384 - 256)
    assert larger - smaller == 256 * (SMOLLM2.row_bytes + 256 * (4 + 6 * SMOLLM2.heads))
    assert footprint(SMOLLM2, 16_384 - 255) == larger
    assert footprint(SMOLLM2, 0) > SMOLLM2.weights_bytes + RUNTIME_BYTES


def test_repacked_weights_and_states_count_where_they_are() -> None:
    shape = replace(SMOLLM2, repacked_bytes=1 << 20, state_elements=1000)
    assert footprint(shape, 512) - footprint(shape, 512, repack=False) == 1 << 20
    assert footprint(shape, 512, 33) - footprint(shape, 512, 1) == 32 * shape.state_bytes == 32 * 4000


def test_an_unknown_shape_has_no_footprint() -> None:
    with pytest.raises(FootprintUnknown, match="a cache of its own"):
        footprint(replace(SMOLLM2, unknown="it has a cache of its own"), 512)


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
