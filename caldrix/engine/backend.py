"""The few calls that a model runtime must offer. `llama.py` is the real one; a test double stands on the same calls.

A backend holds sequences of rows (a row is one token's keys and values) by number, 0 to `facts.sequences - 1`. It is
used by one thread at a time, but `tokenize` may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np
from llguidance import LLTokenizer
from numpy.typing import NDArray

Logits = NDArray[np.float32]
"""Shape (rows, vocabulary size)."""

MIN_PASS_ROWS: Final = 16
"""The least rows of a pass over a prompt. Native kernels for few rows round otherwise than those for many: measured
with two quantised models, passes of 16 rows and more agree exactly, of 1 to 8 rows move log-probabilities by up to
0.45. So a prompt's tail is computed in passes of at least this many rows, cold or resumed, and gives the same logits.
"""

MAX_PASS_ROWS: Final = 512
MAX_OUTPUT_ROWS: Final = 128
"""The most rows of one pass whose logits are all wanted: a row's are 0.6 MB for a vocabulary of 150,000."""


@dataclass(frozen=True)
class Vocabulary:
    """Token facts. `markup` maps the text of control and user-defined markup tokens to their ids."""

    pieces: tuple[bytes, ...]
    markup: dict[str, int]
    user_defined: frozenset[int]
    control: frozenset[int]
    end_of_generation: frozenset[int]
    strip_left: frozenset[int]
    strip_right: frozenset[int]
    bos: int | None
    bos_text: str
    eos_text: str
    add_bos: bool


@dataclass(frozen=True)
class ModelFacts:
    """What a loaded model is. Sizes in bytes, window and cells in tokens; `notes` are sentences for `caldrix doctor`.

    `cells` is how many rows all sequences hold together, a shared one counted once. `block_rows` is how many rows of a
    sequence are stored as one piece; 0: this model keeps a state instead of rows (recurrent, hybrid), so a sequence can
    neither be cut nor stored in pieces, only whole. `branches` sequences can be branched off one at the same time.
    """

    name: str
    lane: str
    threads: int
    window: int
    cells: int
    sequences: int
    block_rows: int
    branches: int
    footprint_bytes: int
    template: str | None
    notes: tuple[str, ...] = ()


class Row(NamedTuple):
    """One row of a pass; `wanted`: its logits are."""

    token: int
    position: int
    sequence: int
    wanted: bool


class Saved(NamedTuple):
    """Saved rows, of which those from `start` to `end` are wanted: positions in their sequence."""

    start: int
    end: int
    data: bytes


class Backend(Protocol):
    vocabulary: Vocabulary
    facts: ModelFacts

    def tokenize(self, text: str) -> list[int]:
        """Ids of plain text: control tokens in it are not parsed, nothing is added."""

    def matcher_tokenizer(self) -> LLTokenizer:
        """The tokenizer that constraints are compiled for. Takes about a second: ask once."""

    def decode(self, rows: Sequence[Row]) -> Logits:
        """One pass of at most MAX_PASS_ROWS, each sequence's rows in order after those it holds. Gives the logits of
        the wanted rows, in order. Raises NoRoom, which changes nothing, or EngineFailed."""

    def copy(self, source: int, target: int) -> None:
        """Make the empty sequence `target` share all rows of `source`. No bytes are moved where the model has rows."""

    def keep(self, sequence: int, rows: int) -> bool:
        """Cut a sequence to its first `rows`. False: this model cannot, and the sequence is now unusable."""

    def clear(self, sequence: int) -> None:
        """Empty a sequence."""

    def save(self, sequence: int, start: int, end: int) -> bytes:
        """The rows `start` to `end` of a sequence; all of it (whatever is asked) where `block_rows` is 0."""

    def load(self, sequence: int, parts: Sequence[Saved]) -> None:
        """Fill the empty `sequence` with saved parts, which follow each other. Raises EngineFailed."""

    def set_threads(self, threads: int) -> None:
        """Use so many threads from the next pass on."""

    def close(self) -> None: ...


class EngineFailed(Exception):
    """The native engine refused or broke; the sequences of the pass are unusable until they are cleared."""


class NoRoom(Exception):
    """The cells do not hold what was asked; nothing has changed."""
