"""The backend over llama.cpp, by the low-level API of llama-cpp-python, which only this and `llama_model.py` import.

One unified cache holds the live sequence (id 0) and, for a moment, the branches of a OneOf (ids 1…). Flash attention is
off: without it logits do not depend on how a prompt was cut into passes. Sliding-window models keep all their rows
(`swa_full`), so that cutting a sequence is right for them too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal

import llama_cpp
import numpy as np
from llguidance import LLTokenizer
from llguidance.llamacpp import lltokenizer_from_vocab

from caldrix.engine.backend import MAX_OUTPUT_ROWS, MIN_PASS_ROWS, EngineFailed, Logits, ModelFacts
from caldrix.engine.llama_model import LlamaModel, read_vocabulary
from caldrix.models.fit import MICRO_BATCH_ROWS, footprint

LIVE: Final = 0
MAX_BRANCHES: Final = 31
BATCH_ROWS: Final = 512
BRANCH_CELLS: Final = MAX_OUTPUT_ROWS
"""Cells beyond the window, for the branches of a OneOf that share a pass; a longer one has its room in the window."""


@dataclass(frozen=True)
class OpenOptions:
    """`window` in tokens. `repack` allows kernels that rearrange the weights."""

    threads: int
    window: int
    repack: bool = True


class LlamaBackend:
    """A model with its context. One thread at a time, except for `tokenize`. Closing it frees both."""

    def __init__(self, model: LlamaModel, name: str, options: OpenOptions, notes: tuple[str, ...] = ()) -> None:
        self._model = model
        self._cells = options.window + BRANCH_CELLS
        self._context = _open_context(model, options, self._cells)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(BATCH_ROWS, 0, 1)
        self.vocabulary = read_vocabulary(model.vocab)
        self.facts = ModelFacts(
            name=name,
            lane=_lane(),
            threads=options.threads,
            window=options.window,
            footprint_bytes=footprint(model.shape, self._cells),
            template=model.template(),
            notes=notes,
        )

    def tokenize(self, text: str) -> list[int]:
        data = text.encode("utf-8", "replace")
        size = len(data) + 8
        while True:
            buffer = (llama_cpp.llama_token * size)()
            count = llama_cpp.llama_tokenize(self._model.vocab, data, len(data), buffer, size, False, False)
            if count >= 0:
                return list(buffer[:count])
            size = -count

    def matcher_tokenizer(self) -> LLTokenizer:
        return lltokenizer_from_vocab(self._model.vocab, eos_token=sorted(self.vocabulary.end_of_generation))

    def eval(self, tokens: Sequence[int], start: int, want: Literal["none", "last", "all"]) -> Logits:
        kept: list[Logits] = []
        size = MAX_OUTPUT_ROWS if want == "all" else BATCH_ROWS
        for offset in range(0, len(tokens), size):
            part = tokens[offset : offset + size]
            final = offset + len(part) == len(tokens)
            outputs = [want == "all" or (want == "last" and final and row == len(part) - 1) for row in range(len(part))]
            positions = range(start + offset, start + offset + len(part))
            kept.append(self._decode(part, positions, [LIVE] * len(part), outputs))
        return np.concatenate(kept) if kept else np.empty((0, len(self.vocabulary.pieces)), np.float32)

    def branches(self, branches: Sequence[Sequence[int]], start: int) -> Iterator[tuple[int, Logits]]:
        first = 0
        for group in _groups(branches):
            padded = group + [group[0]] * _padding(group)
            try:
                for number, rows in self._branch_group(padded, start):
                    if number < len(group):
                        yield first + number, rows
            finally:
                for sequence in range(1, len(padded) + 1):
                    llama_cpp.llama_memory_seq_rm(self._memory, sequence, -1, -1)
            first += len(group)

    def keep(self, rows: int) -> bool:
        cut = llama_cpp.llama_memory_seq_rm(self._memory, LIVE, rows, -1)
        # A model that forgets (recurrent, or a sliding window) may answer true and yet lack the rows before.
        return bool(cut) and self._bounds() == (0, rows - 1)

    def clear(self) -> None:
        llama_cpp.llama_memory_clear(self._memory, False)

    def save(self) -> bytes:
        size = llama_cpp.llama_state_seq_get_size(self._context, LIVE)
        buffer = (ctypes.c_uint8 * size)()
        written = llama_cpp.llama_state_seq_get_data(self._context, buffer, size, LIVE)
        return bytes(memoryview(buffer)[:written])

    def load(self, snapshot: bytes) -> None:
        self.clear()
        buffer = (ctypes.c_uint8 * len(snapshot)).from_buffer_copy(snapshot)
        if not llama_cpp.llama_state_seq_set_data(self._context, buffer, len(snapshot), LIVE):
            self.clear()
            raise EngineFailed(f"a stored prefix of {len(snapshot)} bytes could not be loaded")

    def close(self) -> None:
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)
        self._model.close()

    def _bounds(self) -> tuple[int, int]:
        return (
            llama_cpp.llama_memory_seq_pos_min(self._memory, LIVE),
            llama_cpp.llama_memory_seq_pos_max(self._memory, LIVE),
        )

    def _branch_group(self, group: Sequence[Sequence[int]], start: int) -> Iterator[tuple[int, Logits]]:
        """Branch n becomes the sequence n + 1."""
        for number in range(len(group)):
            llama_cpp.llama_memory_seq_cp(self._memory, LIVE, number + 1, -1, -1)
        rows = [
            (number, token, position)
            for number, branch in enumerate(group)
            for position, token in enumerate(branch, start)
        ]
        for offset in range(0, len(rows), MAX_OUTPUT_ROWS):
            numbers, tokens, positions = zip(*rows[offset : offset + MAX_OUTPUT_ROWS], strict=True)
            logits = self._decode(tokens, positions, [number + 1 for number in numbers], [True] * len(tokens))
            end = 0
            for number, run in groupby(numbers):
                begin, end = end, end + len(list(run))
                yield number, logits[begin:end]

    def _decode(
        self, tokens: Sequence[int], positions: Sequence[int], sequences: Sequence[int], outputs: Sequence[bool]
    ) -> Logits:
        """One pass; the logits of the rows marked in `outputs`, in order."""
        batch = self._batch
        count = len(tokens)
        batch.n_tokens = count
        np.ctypeslib.as_array(batch.token, (count,))[:] = tokens
        np.ctypeslib.as_array(batch.pos, (count,))[:] = positions
        np.ctypeslib.as_array(batch.n_seq_id, (count,))[:] = 1
        np.ctypeslib.as_array(batch.logits, (count,))[:] = outputs
        for row, sequence in enumerate(sequences):
            batch.seq_id[row][0] = sequence
        code = llama_cpp.llama_decode(self._context, batch)
        if code:
            reason = "no room in the cache" if code == 1 else f"llama.cpp answered {code}"
            raise EngineFailed(f"a pass of {count} rows at position {positions[0]} failed: {reason}")
        width = len(self.vocabulary.pieces)
        wanted = [row for row, output in enumerate(outputs) if output]
        logits = np.empty((len(wanted), width), np.float32)
        for place, row in enumerate(wanted):
            logits[place] = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self._context, row), (width,))
        if np.isnan(logits.max(initial=0.0)):  # the maximum of any NaN is NaN
            raise EngineFailed(f"a pass of {count} rows at position {positions[0]} gave logits that are no numbers")
        return logits


def _open_context(model: LlamaModel, options: OpenOptions, cells: int) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = cells
    params.n_batch = BATCH_ROWS
    params.n_ubatch = MICRO_BATCH_ROWS
    params.n_seq_max = 1 + MAX_BRANCHES
    params.n_threads = options.threads
    params.n_threads_batch = options.threads
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.swa_full = True
    params.kv_unified = True
    params.no_perf = True
    context = llama_cpp.llama_init_from_model(model.handle, params)
    if not context:
        raise EngineFailed(f"llama.cpp cannot open a context of {cells} cells: see the pool's log for its reason")
    return context


def _groups(branches: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Branches that fit one pass together: by sequence ids, batch rows and spare cells."""
    group: list[Sequence[int]] = []
    rows = 0
    for branch in branches:
        if group and (len(group) == MAX_BRANCHES or rows + len(branch) > BRANCH_CELLS):
            yield group
            group, rows = [], 0
        group.append(branch)
        rows += len(branch)
    if group:
        yield group


def _padding(group: Sequence[Sequence[int]]) -> int:
    """Copies of the first branch that bring a group to MIN_PASS_ROWS, so that scores do not depend on its company."""
    missing = MIN_PASS_ROWS - sum(len(branch) for branch in group)
    return min(max(0, -(-missing // len(group[0]))), MAX_BRANCHES - len(group))


def _lane() -> str:
    return "gpu" if llama_cpp.llama_supports_gpu_offload() else "cpu"


@contextmanager
def opened(path: Path, options: OpenOptions) -> Iterator[LlamaBackend]:
    """A backend for a moment, as the probe needs it."""
    backend = LlamaBackend(LlamaModel(path, repack=options.repack), path.stem, options)
    try:
        yield backend
    finally:
        backend.close()
