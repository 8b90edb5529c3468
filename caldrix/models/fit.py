"""How much memory a member needs, by a written formula, and which window it gets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MICRO_BATCH_ROWS: Final = 256
"""Rows the engine computes at a time; the compute buffers are sized for it."""
KV_ELEMENT_BYTES: Final = 2
DEFAULT_WINDOW: Final = 16_384
"""The largest window taken unasked: longer ones cost memory on every start and fit few laptops."""
BUDGET_SHARE: Final = 4
BUDGET_LIMIT_BYTES: Final = 8 << 30
RUNTIME_BYTES: Final = 160 << 20
"""The process itself: interpreter, libraries, vocabulary and the constraint tokenizer."""


@dataclass(frozen=True)
class Shape:
    """A model's dimensions. Widths in elements, per head where the name says key or value."""

    weights_bytes: int
    layers: int
    heads: int
    kv_heads: int
    key_width: int
    value_width: int
    width: int
    vocabulary: int
    trained_window: int

    @property
    def row_bytes(self) -> int:
        """Keys and values of one token."""
        return self.layers * self.kv_heads * (self.key_width + self.value_width) * KV_ELEMENT_BYTES


def footprint(shape: Shape, cells: int) -> int:
    """Bytes a member takes without its prefix store.

    weights + cells × row + compute buffers + the process. The compute buffers hold, for a micro-batch in 32-bit floats,
    the attention scores (heads × cells), the logits (vocabulary) and about a dozen activations (width).
    """
    compute = MICRO_BATCH_ROWS * 4 * (shape.heads * cells + shape.vocabulary + 12 * shape.width)
    return shape.weights_bytes + cells * shape.row_bytes + compute + RUNTIME_BYTES


def choose_window(shape: Shape, asked: int | None) -> int:
    """The window in tokens: what was asked, never beyond what the model was trained for."""
    wanted = asked or DEFAULT_WINDOW
    return min(wanted, shape.trained_window) if shape.trained_window > 0 else wanted


def default_budget(limit_bytes: int) -> int:
    """The prefix store's budget: a quarter of the memory limit, at most 8 GiB."""
    return min(limit_bytes // BUDGET_SHARE, BUDGET_LIMIT_BYTES)
