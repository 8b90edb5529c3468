"""A child process for `test_fit_measured`: open a model, fill its window, ask for many outputs, tell the peak memory.

`python -m tests.models.full_window MODEL WINDOW SEQUENCES` prints {"measured", "computed"} in bytes. The cells are
filled by loading one stored state into sequence after sequence: the cache and the buffers are then used as by a full
window of one sequence (measured: 271 MiB either way for smollm2 at 2,048), without its hour of computing.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import psutil
from llguidance.llamacpp import lltokenizer_from_vocab

from caldrix.engine.llama_model import LlamaModel, read_vocabulary
from caldrix.models.fit import MICRO_BATCH_ROWS, OUTPUT_ROWS, footprint

BATCH_ROWS = 512


def main(path: str, window: int, sequences: int) -> None:
    model = LlamaModel(Path(path))
    context = open_context(model, window, sequences)
    vocabulary = read_vocabulary(model.vocab)
    tokenizer = lltokenizer_from_vocab(model.vocab, eos_token=sorted(vocabulary.end_of_generation))
    batch = llama_cpp.llama_batch_init(BATCH_ROWS, 0, 1)
    fill(context, batch, window - BATCH_ROWS, sequences)
    decode(context, batch, BATCH_ROWS, 0)
    logits = outputs(context, len(vocabulary.pieces))
    measured = peak_bytes()
    assert logits.shape[0] == OUTPUT_ROWS and tokenizer is not None
    sys.stdout.write(json.dumps({"measured": measured, "computed": footprint(model.shape, window, sequences)}))


def open_context(model: LlamaModel, window: int, sequences: int) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = window, BATCH_ROWS, MICRO_BATCH_ROWS, sequences
    params.n_threads = params.n_threads_batch = 2
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.swa_full = params.kv_unified = True
    context = llama_cpp.llama_init_from_model(model.handle, params)
    assert context
    return context


def fill(context: Any, batch: Any, cells: int, sequences: int) -> None:
    """Sequences 1… hold the same rows; sequence 0 stays empty."""
    memory = llama_cpp.llama_get_memory(context)
    size = -(-cells // (sequences - 1))
    decode(context, batch, size, 0)
    length = llama_cpp.llama_state_seq_get_size(context, 0)
    state = (ctypes.c_uint8 * length)()
    llama_cpp.llama_state_seq_get_data(context, state, length, 0)
    llama_cpp.llama_memory_seq_rm(memory, 0, -1, -1)
    for sequence in range(1, cells // size + 1):
        assert llama_cpp.llama_state_seq_set_data(context, state, length, sequence)


def decode(context: Any, batch: Any, count: int, start: int) -> None:
    batch.n_tokens = count
    for row in range(count):
        batch.token[row], batch.pos[row] = 10 + row % 200, start + row
        batch.n_seq_id[row], batch.seq_id[row][0], batch.logits[row] = 1, 0, row >= count - OUTPUT_ROWS
    assert llama_cpp.llama_decode(context, batch) == 0


def outputs(context: Any, width: int) -> np.ndarray:
    """Copied and joined, as the backend does."""
    first = np.ctypeslib.as_array(
        llama_cpp.llama_get_logits_ith(context, BATCH_ROWS - OUTPUT_ROWS), (OUTPUT_ROWS, width)
    )
    return np.concatenate([first.copy()])


def peak_bytes() -> int:
    """The most memory this process had resident; the current where the system does not tell the most."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
