"""The backend over llama.cpp, by the low-level API of llama-cpp-python, which only this and `llama_model.py` import.

One unified cache holds all sequences, so that a copy shares its rows with what it was copied from. Flash attention is
off: without it logits do not depend on how a prompt was cut into passes. Sliding-window models keep all their rows
(`swa_full`), so that cutting a sequence is right for them too. Saved pieces pass through a sequence of their own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import llama_cpp
import numpy as np
from llguidance import LLTokenizer
from llguidance.llamacpp import lltokenizer_from_vocab

from caldrix.engine.backend import (
    MAX_OUTPUT_ROWS,
    MAX_PASS_ROWS,
    EngineFailed,
    Logits,
    ModelFacts,
    NoRoom,
    Row,
    Saved,
)
from caldrix.engine.llama_model import LlamaModel, read_vocabulary
from caldrix.models.fit import MICRO_BATCH_ROWS

BRANCHES: Final = 16
STATE_BRANCHES: Final = 2
"""For models that keep a state a sequence, whose memory is there whether it is used or not."""
BRANCH_CELLS: Final = MAX_OUTPUT_ROWS
"""Cells beyond the window, for the branches of a OneOf that share a pass."""
PIECE_ROWS: Final = 256


@dataclass(frozen=True)
class OpenOptions:
    """`window` in tokens; `batch` generations decode together. `repack` allows kernels that rearrange the weights."""

    threads: int
    window: int
    repack: bool = True
    batch: int = 1


@dataclass(frozen=True)
class Cache:
    """What a context is opened with: rows of all sequences together, sequence numbers (the last one moves saved
    pieces), how many of them may branch off one, and rows of a stored piece (0: the model keeps states).

    llama.cpp gives cells outside a sequence's sliding window to new rows, also with `swa_full`, unless a second
    sequence holds them. So for such models each sequence has a guard that holds what it holds, `guards` numbers
    further; 0 where none is needed.
    """

    cells: int
    sequences: int
    branches: int
    piece_rows: int
    guards: int


def plan_cache(model: LlamaModel, options: OpenOptions) -> Cache:
    """One window for all sequences together; numbers for those that run, as many idle ones, and the branches."""
    rows = _piece_rows(model)
    branches, idle = (BRANCHES, options.batch) if rows else (STATE_BRANCHES, 1)
    usable = options.batch + idle + branches
    guards = usable if rows and llama_cpp.llama_model_n_swa(model.handle) > 0 else 0
    return Cache(options.window + BRANCH_CELLS, usable + guards + 1, branches, rows, guards)


class LlamaBackend:
    """A model with its context. One thread at a time, except for `tokenize`. Closing it frees both."""

    def __init__(
        self, model: LlamaModel, name: str, options: OpenOptions, needs: int = 0, notes: tuple[str, ...] = ()
    ) -> None:
        """`needs`: the bytes it takes, 0 where that is not known."""
        self._model = model
        cache = plan_cache(model, options)
        self._context = _open_context(model, options, cache)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(MAX_PASS_ROWS, 0, 1)
        self._tokens = np.ctypeslib.as_array(self._batch.token, (MAX_PASS_ROWS,))
        self._positions = np.ctypeslib.as_array(self._batch.pos, (MAX_PASS_ROWS,))
        self._wanted = np.ctypeslib.as_array(self._batch.logits, (MAX_PASS_ROWS,))
        np.ctypeslib.as_array(self._batch.n_seq_id, (MAX_PASS_ROWS,))[:] = 1
        self._threads = options.threads
        self._moving = cache.sequences - 1
        self._guards = cache.guards
        self.vocabulary = read_vocabulary(model.vocab)
        self.facts = ModelFacts(
            name=name,
            lane=_lane(),
            threads=options.threads,
            window=options.window,
            cells=cache.cells,
            sequences=cache.guards or cache.sequences - 1,
            block_rows=cache.piece_rows,
            branches=cache.branches,
            footprint_bytes=needs,
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

    def decode(self, rows: Sequence[Row]) -> Logits:
        if not self._guards:
            return self._decode(rows)
        parts = []
        for start in range(0, len(rows), MICRO_BATCH_ROWS):
            part = rows[start : start + MICRO_BATCH_ROWS]
            parts.append(self._decode(part))
            for sequence, group in groupby(part, key=lambda row: row.sequence):
                positions = [row.position for row in group]
                self._copy(sequence, sequence + self._guards, min(positions), max(positions) + 1)
        return np.concatenate(parts)

    def copy(self, source: int, target: int) -> None:
        for number in self._holders(target):
            self._copy(source, number, -1, -1)

    def keep(self, sequence: int, rows: int) -> bool:
        cut = [self._remove(number, rows) for number in self._holders(sequence)]
        # A model that forgets (recurrent, or a sliding window) may answer true and yet lack the rows before.
        return all(cut) and (rows == 0 or self._bounds(sequence) == (0, rows - 1))

    def clear(self, sequence: int) -> None:
        for number in self._holders(sequence):
            self._remove(number, -1)

    def save(self, sequence: int, start: int, end: int) -> bytes:
        if not self.facts.block_rows:
            return self._state(sequence)
        self._copy(sequence, self._moving, start, end)
        try:
            return self._state(self._moving)
        finally:
            self._remove(self._moving, -1)

    def load(self, sequence: int, parts: Sequence[Saved]) -> None:
        for start, end, data in parts:
            buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
            loaded = llama_cpp.llama_state_seq_set_data(self._context, buffer, len(data), self._moving)
            if loaded:
                ends = (start, end) if self.facts.block_rows else (-1, -1)
                for number in self._holders(sequence):
                    self._copy(self._moving, number, *ends)
            self._remove(self._moving, -1)
            if not loaded:
                raise EngineFailed(f"a stored prefix of {len(data)} bytes could not be loaded")
        self._check_loaded(sequence, parts[-1].end)

    def set_threads(self, threads: int) -> None:
        if threads != self._threads:
            llama_cpp.llama_set_n_threads(self._context, threads, threads)
            self._threads = threads

    def close(self) -> None:
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)
        self._model.close()

    def _decode(self, rows: Sequence[Row]) -> Logits:
        batch, count = self._batch, len(rows)
        batch.n_tokens = count
        tokens, positions, sequences, wanted = zip(*rows, strict=True)
        self._tokens[:count] = tokens
        self._positions[:count] = positions
        self._wanted[:count] = wanted
        for place, sequence in enumerate(sequences):
            batch.seq_id[place][0] = sequence
        code = llama_cpp.llama_decode(self._context, batch)
        if code == 1:
            raise NoRoom(f"a pass of {count} rows found no room in the cache")
        if code:
            raise EngineFailed(f"a pass of {count} rows at position {positions[0]} failed: llama.cpp answered {code}")
        return self._logits([place for place, asked in enumerate(wanted) if asked])

    def _holders(self, sequence: int) -> tuple[int, ...]:
        return (sequence, sequence + self._guards) if self._guards else (sequence,)

    def _copy(self, source: int, target: int, start: int, end: int) -> None:
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, start, end)

    def _remove(self, sequence: int, start: int) -> bool:
        return bool(llama_cpp.llama_memory_seq_rm(self._memory, sequence, start, -1))

    def _logits(self, places: Sequence[int]) -> Logits:
        width = len(self.vocabulary.pieces)
        logits = np.empty((len(places), width), np.float32)
        for line, place in enumerate(places):
            logits[line] = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self._context, place), (width,))
        return logits

    def _state(self, sequence: int) -> bytes:
        size = llama_cpp.llama_state_seq_get_size(self._context, sequence)
        buffer = (ctypes.c_uint8 * size)()
        written = llama_cpp.llama_state_seq_get_data(self._context, buffer, size, sequence)
        return bytes(memoryview(buffer)[:written])

    def _check_loaded(self, sequence: int, rows: int) -> None:
        """The cheap sign of a part that is missing or in the wrong place."""
        bounds = self._bounds(sequence)
        right = (0, rows - 1) if self.facts.block_rows else (rows - 1, rows - 1)
        if bounds != right:
            raise EngineFailed(f"a stored prefix of {rows} rows came back with the positions {bounds}")

    def _bounds(self, sequence: int) -> tuple[int, int]:
        return (
            llama_cpp.llama_memory_seq_pos_min(self._memory, sequence),
            llama_cpp.llama_memory_seq_pos_max(self._memory, sequence),
        )


def _piece_rows(model: LlamaModel) -> int:
    """Rows of a stored piece. A sliding layer saves only the last rows before a piece's end, as many as its window is
    wide, so longer pieces could not be cut; a recurrent state has no rows at all."""
    if llama_cpp.llama_model_is_recurrent(model.handle) or llama_cpp.llama_model_is_hybrid(model.handle):
        return 0
    sliding = llama_cpp.llama_model_n_swa(model.handle)
    return min(PIECE_ROWS, sliding) if sliding > 0 else PIECE_ROWS


def _open_context(model: LlamaModel, options: OpenOptions, cache: Cache) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = cache.cells
    params.n_batch = MAX_PASS_ROWS
    params.n_ubatch = MICRO_BATCH_ROWS
    params.n_seq_max = cache.sequences
    params.n_threads = options.threads
    params.n_threads_batch = options.threads
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.swa_full = True
    params.kv_unified = True
    params.no_perf = True
    context = llama_cpp.llama_init_from_model(model.handle, params)
    if not context:
        raise EngineFailed(f"llama.cpp cannot open a context of {cache.cells} cells: see the pool's log")
    return context


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
