"""A bare llama.cpp loop and a bare mask, by low-level calls only: what a daemon's overhead is measured against.

Runs in a child process (`child.py`), which keeps the opened model.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

BATCH_ROWS: Final = 512
LOG_ERROR: Final = 4
"""As ggml counts."""
JSON_STYLE: Final[Any] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""As the protocol has it: no white space around a value, `, ` and `: ` between items."""


@dataclass(frozen=True)
class Decoded:
    """The ids chosen, and the seconds from the first one until the last one."""

    ids: tuple[int, ...]
    seconds: float

    @property
    def token_ms(self) -> float:
        return 1000 * self.seconds / (len(self.ids) - 1)


@dataclass(frozen=True)
class Masked:
    """Microseconds of every token of a text: filling its mask, and the argmax under it."""

    fill_us: tuple[float, ...]
    argmax_us: tuple[float, ...]


@dataclass(frozen=True)
class _Open:
    """An opened model, as llama.cpp's own handles."""

    lib: Any
    context: Any
    vocab: Any
    batch: Any
    width: int
    on_log: Any
    """Held here, since the library calls it."""


def decode(model: Path, threads: int, window: int, prompt: Sequence[int], tokens: int) -> Decoded:
    """`tokens` greedy tokens after a prompt, one pass each; fewer where the model ends its turn before."""
    import numpy as np

    opened = _opened(model, threads, window)
    lib = opened.lib
    lib.llama_memory_clear(lib.llama_get_memory(opened.context), False)
    for start in range(0, len(prompt), BATCH_ROWS):
        _pass(opened, prompt[start : start + BATCH_ROWS], start)
    chosen: list[int] = []
    begin = end = 0.0
    while len(chosen) < tokens:
        token = int(np.ctypeslib.as_array(lib.llama_get_logits_ith(opened.context, -1), (opened.width,)).argmax())
        end = time.perf_counter()
        begin = begin or end
        if lib.llama_vocab_is_eog(opened.vocab, token):
            break
        chosen.append(token)
        _pass(opened, [token], len(prompt) + len(chosen) - 1)
    return Decoded(tuple(chosen), end - begin)


def mask(model: Path, threads: int, window: int, schema: Mapping[str, Any], text: str) -> Masked:
    """Walk `text` under the schema, as a member does that generates it. Raises ValueError where it is forbidden."""
    import numpy as np
    from llguidance import LLMatcher
    from llguidance.llamacpp import lltokenizer_from_vocab
    from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

    opened = _opened(model, threads, window)
    tokenizer = lltokenizer_from_vocab(opened.vocab)
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=JSON_STYLE))
    bits = allocate_token_bitmask(1, opened.width)
    row = np.random.default_rng(0).standard_normal(opened.width, np.float32)
    fills, choices = [], []
    for token in tokenizer.tokenize_str(text):
        start = time.perf_counter()
        fill_next_token_bitmask(matcher, bits)
        filled = time.perf_counter()
        allowed = np.unpackbits(bits[0].view(np.uint8), bitorder="little")[: opened.width].view(np.bool_)
        np.where(allowed, row, -np.inf).argmax()
        fills.append(1e6 * (filled - start))
        choices.append(1e6 * (time.perf_counter() - filled))
        if not allowed[token] or not matcher.consume_token(token):
            raise ValueError(f"the schema forbids token {token} of the text: {matcher.get_error()}")
    return Masked(tuple(fills), tuple(choices))


@functools.cache
def _opened(model: Path, threads: int, window: int) -> _Open:
    # First, so that what the engine sets before its library loads holds for this loop too.
    importlib.import_module("caldrix.engine.member")
    lib: Any = importlib.import_module("llama_cpp")
    on_log = lib.llama_log_callback(_errors_only)
    lib.llama_log_set(on_log, None)
    lib.llama_backend_init()
    handle = lib.llama_model_load_from_file(os.fsencode(model), lib.llama_model_default_params())
    if not handle:
        raise ValueError(f"llama.cpp cannot load {model}")
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch = window, BATCH_ROWS
    params.n_threads = params.n_threads_batch = threads
    params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED  # as the member has it
    params.no_perf = True
    context = lib.llama_init_from_model(handle, params)
    if not context:
        raise ValueError(f"llama.cpp cannot open a context of {window} cells")
    vocab = lib.llama_model_get_vocab(handle)
    width = lib.llama_vocab_n_tokens(vocab)
    return _Open(lib, context, vocab, lib.llama_batch_init(BATCH_ROWS, 0, 1), width, on_log)


def _errors_only(level: int, text: bytes, _data: object) -> None:
    if level == LOG_ERROR:
        print(text.decode("utf-8", "replace"), end="", file=sys.stderr)


def _pass(opened: _Open, tokens: Sequence[int], start: int) -> None:
    batch = opened.batch
    batch.n_tokens = len(tokens)
    for row, token in enumerate(tokens):
        batch.token[row], batch.pos[row] = token, start + row
        batch.n_seq_id[row], batch.seq_id[row][0] = 1, 0
        batch.logits[row] = row == len(tokens) - 1
    code = opened.lib.llama_decode(opened.context, batch)
    if code:
        raise ValueError(f"llama.cpp answered {code} to a pass of {len(tokens)} rows at {start}")
