"""The few calls that a model runtime must offer. `llama.py` is the real one; a test double stands on the same calls.

A backend holds one live sequence of rows (a row is one token's keys and values) and is used by one thread at a time,
but `tokenize` may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

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
    """What a loaded model is. Sizes in bytes, the window in tokens; `notes` are sentences for `caldrix doctor`."""

    name: str
    lane: str
    threads: int
    window: int
    footprint_bytes: int
    template: str | None
    notes: tuple[str, ...] = ()


class Backend(Protocol):
    vocabulary: Vocabulary
    facts: ModelFacts

    def tokenize(self, text: str) -> list[int]:
        """Ids of plain text: control tokens in it are not parsed, nothing is added."""

    def matcher_tokenizer(self) -> LLTokenizer:
        """The tokenizer that constraints are compiled for. Takes about a second: ask once."""

    def eval(self, tokens: Sequence[int], start: int, want: Literal["none", "last", "all"]) -> Logits:
        """Compute rows `start`… of the live sequence, which holds exactly `start` rows. Raises EngineFailed."""

    def branches(self, branches: Sequence[Sequence[int]], start: int) -> Iterator[tuple[int, Logits]]:
        """The logits of every row of each branch after the live sequence, which stays: the branch's place and its next
        rows, in order. As many branches as fit share a pass; a long one comes in several pieces. Raises EngineFailed.
        Close the iterator when it is left early."""

    def keep(self, rows: int) -> bool:
        """Cut the live sequence to its first `rows`. False: this model cannot, and the sequence is now unusable."""

    def clear(self) -> None:
        """Empty the live sequence."""

    def save(self) -> bytes:
        """The live sequence as a snapshot."""

    def load(self, snapshot: bytes) -> None:
        """Replace the live sequence. Raises EngineFailed."""

    def close(self) -> None: ...


class EngineFailed(Exception):
    """The native engine refused or broke; the live sequence is unusable until `clear`."""
