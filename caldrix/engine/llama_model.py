"""A model file as llama.cpp reads it: its weights, shape, chat template and vocabulary."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import llama_cpp

from caldrix.engine.backend import EngineFailed, Vocabulary
from caldrix.models.fit import Shape
from caldrix.models.header import read_header
from caldrix.models.shape import shape_of

log = logging.getLogger(__name__)

_LEVELS: Final = {3: logging.INFO, 4: logging.ERROR}
"""ggml's WARN and ERROR; its warnings are about odd models, not about our use."""


def _on_log(level: int, text: bytes, _data: object) -> None:
    line = text.decode("utf-8", "replace").rstrip()
    if level in _LEVELS and line:
        log.log(_LEVELS[level], "llama.cpp: %s", line)


_LOG_CALLBACK: Final = llama_cpp.llama_log_callback(_on_log)


class LlamaModel:
    """The weights: read once, to learn the model's shape before its context is sized. Close it, or hand it on."""

    def __init__(self, path: Path, *, repack: bool = True) -> None:
        llama_cpp.llama_log_set(_LOG_CALLBACK, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = -1
        params.use_extra_bufts = repack
        self.handle = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        if not self.handle:
            raise EngineFailed(f"llama.cpp cannot load {path}: see the pool's log for its reason")
        self.vocab = llama_cpp.llama_model_get_vocab(self.handle)
        self.shape = self._shape(path)

    def meta(self, key: str) -> str | None:
        buffer = ctypes.create_string_buffer(1 << 16)
        length = llama_cpp.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if length >= 0 else None

    def template(self) -> str | None:
        text = llama_cpp.llama_model_chat_template(self.handle, None)
        return text.decode("utf-8") if text else None

    def close(self) -> None:
        llama_cpp.llama_model_free(self.handle)

    def _shape(self, path: Path) -> Shape:
        """From the file's header; where llama.cpp knows better, its number. Only the first part of a split model is
        read, so the second copies are scaled up from it."""
        weights = int(llama_cpp.llama_model_size(self.handle))
        try:
            shape = shape_of(read_header(path))
        except (OSError, ValueError) as error:
            return replace(_bare_shape(self.handle, self.vocab, weights), unknown=f"its header cannot be read: {error}")
        return replace(
            shape,
            weights_bytes=weights,
            repacked_bytes=shape.repacked_bytes * weights // max(1, shape.weights_bytes),
            vocabulary=llama_cpp.llama_vocab_n_tokens(self.vocab),
            trained_window=llama_cpp.llama_model_n_ctx_train(self.handle),
            unknown=shape.unknown or self._contradiction(shape),
        )

    def _contradiction(self, shape: Shape) -> str:
        """Why the header's shape cannot be what llama.cpp has loaded, or empty."""
        recurrent = bool(llama_cpp.llama_model_is_recurrent(self.handle))
        hybrid = bool(llama_cpp.llama_model_is_hybrid(self.handle))
        states, rows = bool(shape.state_elements), bool(shape.row_bytes)
        if (states, rows) == (recurrent or hybrid, not recurrent):
            return ""
        return "its header does not tell which layers keep a state and which keep rows"


def _bare_shape(handle: Any, vocab: Any, weights: int) -> Shape:
    """What llama.cpp itself tells: enough for a window, not for a footprint."""
    return Shape(
        weights_bytes=weights,
        layers=llama_cpp.llama_model_n_layer(handle),
        heads=llama_cpp.llama_model_n_head(handle),
        kv_heads=llama_cpp.llama_model_n_head_kv(handle),
        key_width=0,
        value_width=0,
        width=llama_cpp.llama_model_n_embd(handle),
        vocabulary=llama_cpp.llama_vocab_n_tokens(vocab),
        trained_window=llama_cpp.llama_model_n_ctx_train(handle),
    )


def read_vocabulary(vocab: Any) -> Vocabulary:
    """Every token's bytes and kind. Takes a fraction of a second for 150,000 tokens."""
    count = llama_cpp.llama_vocab_n_tokens(vocab)
    attributes = [llama_cpp.llama_vocab_get_attr(vocab, token) for token in range(count)]
    buffer = ctypes.create_string_buffer(1024)
    pieces = tuple(_piece(vocab, token, buffer) for token in range(count))

    def with_attribute(mask: int) -> frozenset[int]:
        return frozenset(token for token, attribute in enumerate(attributes) if attribute & mask)

    control = with_attribute(llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN)
    user_defined = with_attribute(llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED)
    bos = llama_cpp.llama_vocab_bos(vocab)
    eos = llama_cpp.llama_vocab_eos(vocab)
    return Vocabulary(
        pieces=pieces,
        markup=_markup(pieces, control, user_defined),
        user_defined=user_defined,
        control=control,
        end_of_generation=frozenset(t for t in range(count) if llama_cpp.llama_vocab_is_eog(vocab, t)),
        strip_left=with_attribute(llama_cpp.LLAMA_TOKEN_ATTR_LSTRIP),
        strip_right=with_attribute(llama_cpp.LLAMA_TOKEN_ATTR_RSTRIP),
        bos=bos if bos >= 0 else None,
        bos_text=pieces[bos].decode("utf-8", "replace") if bos >= 0 else "",
        eos_text=pieces[eos].decode("utf-8", "replace") if eos >= 0 else "",
        add_bos=bool(llama_cpp.llama_vocab_get_add_bos(vocab)),
    )


def _piece(vocab: Any, token: int, buffer: Any) -> bytes:
    length = llama_cpp.llama_token_to_piece(vocab, token, buffer, len(buffer), 0, True)
    if length < 0:
        larger = ctypes.create_string_buffer(-length)
        length = llama_cpp.llama_token_to_piece(vocab, token, larger, -length, 0, True)
        return larger.raw[:length]
    data: bytes = buffer.raw[:length]
    return data


def _markup(pieces: Sequence[bytes], control: frozenset[int], user_defined: frozenset[int]) -> dict[str, int]:
    """Texts that must not turn into tokens when a segment holds them: every control token, and user-defined tokens
    that look like markup. Some vocabularies also have user-defined runs of blanks; those are ordinary text."""
    texts: dict[str, int] = {}
    for token in sorted(control | user_defined):
        text = pieces[token].decode("utf-8", "replace")
        if len(text) > 1 and (token in control or text[0] in "<["):
            texts[text] = token
    return texts
