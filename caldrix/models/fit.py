"""How much memory a member needs, by a written formula, and which window it gets. Pure.

    weights       the whole file, mapped into memory
  + repacked      a second copy of the weights whose kernels want another order
  + rows          cells × keys and values of one token, over the layers that attend
  + states        sequences × the state of the recurrent layers, in 32-bit floats
  + compute       a micro-batch of 32-bit floats: masks, activations, and the attention scores or the logits, which
                  are not needed at one time; twice the sequences' states of one layer
  + work          the attention scores once more, in the 16 bits of the values that they are multiplied with
  + outputs       the logits of the most rows that are wanted at once, three times: the engine's, ours, and joined
  + process       the interpreter and its libraries; per token of the vocabulary its text and its place in the tries

Sliding-window models keep all their rows (`swa_full`), so a cell of theirs costs what any cell costs. The formula is
tested against the resident memory of a process that holds a full window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MICRO_BATCH_ROWS: Final = 256
"""Rows the engine computes at a time; the compute buffers are sized for it."""
KV_ELEMENT_BYTES: Final = 2
FLOAT_BYTES: Final = 4
CELL_ALIGNMENT: Final = 256
OUTPUT_ROWS: Final = 128
OUTPUT_COPIES: Final = 3
STATE_COPIES: Final = 2
DEFAULT_WINDOW: Final = 16_384
"""The largest window taken unasked: longer ones cost memory on every start and fit few laptops."""
BUDGET_SHARE: Final = 4
BUDGET_LIMIT_BYTES: Final = 8 << 30
RUNTIME_BYTES: Final = 128 << 20
TOKEN_BYTES: Final = 512
"""Of a vocabulary's token: its text in our list and llama.cpp's, and its place in the constraint tokenizer."""


class FootprintUnknown(Exception):
    """The memory that a model needs cannot be computed; the message is the reason, as part of a sentence."""


@dataclass(frozen=True)
class Shape:
    """A model's dimensions. Widths in elements, per head where the name says key or value.

    `kv_elements`: keys and values of one token over all layers, where they are not the same in each. `state_elements`:
    of one sequence over all recurrent layers, `layer_state_elements` in one of them. `activations`: elements of a
    token at the widest place of a pass. `masks`: 2 where some layers see a sliding window. `repacked_bytes`: of the
    weights that are kept twice. `unknown`: why the memory cannot be computed, or empty.
    """

    weights_bytes: int
    layers: int
    heads: int
    kv_heads: int
    key_width: int
    value_width: int
    width: int
    vocabulary: int
    trained_window: int
    kv_elements: int | None = None
    state_elements: int = 0
    layer_state_elements: int = 0
    activations: int | None = None
    masks: int = 1
    repacked_bytes: int = 0
    unknown: str = ""

    @property
    def row_bytes(self) -> int:
        """Keys and values of one token."""
        same = self.layers * self.kv_heads * (self.key_width + self.value_width)
        return (same if self.kv_elements is None else self.kv_elements) * KV_ELEMENT_BYTES

    @property
    def state_bytes(self) -> int:
        """Recurrent state of one sequence; 0 for a model that only attends."""
        return self.state_elements * FLOAT_BYTES


def footprint(shape: Shape, cells: int, sequences: int = 1, *, repack: bool = True) -> int:
    """Bytes a member takes without its prefix store, by the formula above. Raises FootprintUnknown.

    `cells` of the cache, `sequences` that the context is opened for, `repack` as the weights are loaded.
    """
    if shape.unknown:
        raise FootprintUnknown(shape.unknown)
    cells = -(-cells // CELL_ALIGNMENT) * CELL_ALIGNMENT
    return (
        shape.weights_bytes
        + (shape.repacked_bytes if repack else 0)
        + cells * shape.row_bytes
        + sequences * shape.state_bytes
        + _compute_bytes(shape, cells, sequences)
        + OUTPUT_COPIES * max(OUTPUT_ROWS, sequences) * shape.vocabulary * FLOAT_BYTES
        + RUNTIME_BYTES
        + shape.vocabulary * TOKEN_BYTES
    )


def _compute_bytes(shape: Shape, cells: int, sequences: int) -> int:
    attends = bool(shape.row_bytes)
    scores = shape.heads * cells if attends else 0
    masks = shape.masks * cells if attends else 0
    activations = 12 * shape.width if shape.activations is None else shape.activations
    row = masks + activations + max(scores, shape.vocabulary)
    work = MICRO_BATCH_ROWS * scores * KV_ELEMENT_BYTES
    return work + FLOAT_BYTES * (MICRO_BATCH_ROWS * row + STATE_COPIES * sequences * shape.layer_state_elements)


def choose_window(shape: Shape, asked: int | None) -> int:
    """The window in tokens: what was asked, never beyond what the model was trained for."""
    wanted = asked or DEFAULT_WINDOW
    return min(wanted, shape.trained_window) if shape.trained_window > 0 else wanted


def default_budget(limit_bytes: int) -> int:
    """The prefix store's budget: a quarter of the memory limit, at most 8 GiB."""
    return min(limit_bytes // BUDGET_SHARE, BUDGET_LIMIT_BYTES)
