"""Tiny GGUF models of random weights, one for each kind of memory that llama.cpp has. Under a megabyte each.

The same arguments always write the same bytes. A greedy run speaks printable ASCII, never ends by itself, and depends
on the whole prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from gguf import GGUFWriter

from tests.doubles import tiny_weights as weights
from tests.doubles.tiny_vocabulary import Vocabulary, vocabulary

Kind = Literal["attention", "experts", "sliding", "recurrent", "hybrid", "convolution"]
"""Attention everywhere; the same with experts; a window of SLIDING_WINDOW rows in every second layer; a state and no
rows (mamba); states and rows in turn (jamba); short convolutions and rows in turn (lfm2)."""

WINDOW: Final = 2048
SLIDING_WINDOW: Final = 32
CHATML: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class _Plan:
    """An architecture by llama.cpp's name, its layers in order, and the keys it has beyond the common ones."""

    architecture: str
    layers: tuple[weights.Layer, ...]
    describe: Callable[[GGUFWriter], None]
    last_norm: str = "output_norm.weight"


def write_tiny(
    path: Path,
    kind: Kind,
    *,
    template: str | None = CHATML,
    seed: int = 0,
    window: int = WINDOW,
    tokenizer: bool = True,
    architecture: str | None = None,
    not_a_number: str | None = None,
) -> Path:
    """Write a model and return its path.

    `architecture` claims another one in the header; `tokenizer` false leaves the vocabulary out; the tensor named
    `not_a_number` is filled with NaN.
    """
    plan = _PLANS[kind]
    words = vocabulary()
    writer = GGUFWriter(path, architecture or plan.architecture)
    writer.add_name(f"tiny {kind} {seed}")
    _describe_common(writer, len(plan.layers), window, len(words.tokens))
    plan.describe(writer)
    if tokenizer:
        _describe_tokenizer(writer, words)
    if template is not None:
        writer.add_chat_template(template)
    for name, tensor in _tensors(plan, seed, np.array(words.spoken)):
        writer.add_tensor(name, np.full_like(tensor, np.nan) if name == not_a_number else tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(plan: _Plan, seed: int, spoken: np.ndarray) -> Iterator[tuple[str, weights.Tensor]]:
    draw = weights.Draw(seed)
    yield from weights.outer_tensors(draw, spoken, plan.last_norm)
    for number, layer in enumerate(plan.layers):
        yield from layer(draw, f"blk.{number}")


def _describe_common(writer: GGUFWriter, layers: int, window: int, tokens: int) -> None:
    writer.add_block_count(layers)
    writer.add_context_length(window)
    writer.add_embedding_length(weights.WIDTH)
    writer.add_feed_forward_length(weights.FEED_FORWARD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(tokens)


def _describe_tokenizer(writer: GGUFWriter, words: Vocabulary) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words.tokens)
    writer.add_token_types(words.kinds)
    writer.add_token_merges(words.merges)
    writer.add_bos_token_id(words.id_of("<|endoftext|>"))
    writer.add_eos_token_id(words.id_of("<|im_end|>"))
    writer.add_add_bos_token(False)


def _heads(writer: GGUFWriter, kv_heads: int | list[int] = weights.KV_HEADS) -> None:
    writer.add_head_count(weights.HEADS)
    writer.add_head_count_kv(kv_heads)


def _rotary(writer: GGUFWriter) -> None:
    _heads(writer)
    writer.add_rope_dimension_count(weights.HEAD_WIDTH)
    writer.add_rope_freq_base(10_000.0)


def _experts(writer: GGUFWriter) -> None:
    _rotary(writer)
    writer.add_expert_count(weights.EXPERTS)
    writer.add_expert_used_count(2)


def _sliding(writer: GGUFWriter) -> None:
    _rotary(writer)
    writer.add_key_length(weights.HEAD_WIDTH)
    writer.add_value_length(weights.HEAD_WIDTH)
    writer.add_sliding_window(SLIDING_WINDOW)
    writer.add_sliding_window_pattern([True, False, True, False])


def _mamba(writer: GGUFWriter) -> None:
    writer.add_ssm_conv_kernel(weights.KERNEL)
    writer.add_ssm_inner_size(weights.INNER)
    writer.add_ssm_state_size(weights.STATES)
    writer.add_ssm_time_step_rank(weights.RANK)


def _recurrent(writer: GGUFWriter) -> None:
    _mamba(writer)
    writer.add_head_count(0)


def _hybrid(writer: GGUFWriter) -> None:
    _mamba(writer)
    _heads(writer, [0, weights.KV_HEADS, 0, weights.KV_HEADS])


def _convolution(writer: GGUFWriter) -> None:
    _heads(writer, [0, weights.KV_HEADS, 0, weights.KV_HEADS])
    writer.add_rope_freq_base(10_000.0)
    writer.add_shortconv_l_cache(weights.SHORT_KERNEL)


_PLANS: Final[dict[Kind, _Plan]] = {
    "attention": _Plan("llama", (weights.llama_layer,) * 4, _rotary),
    "experts": _Plan("llama", (weights.moe_layer,) * 3, _experts),
    "sliding": _Plan("gemma3", (weights.gemma_layer,) * 4, _sliding),
    "recurrent": _Plan("mamba", (weights.mamba_layer,) * 4, _recurrent),
    "hybrid": _Plan("jamba", (weights.jamba_layer, weights.llama_layer) * 2, _hybrid),
    "convolution": _Plan(
        "lfm2", (weights.convolution_layer, weights.normed_layer) * 2, _convolution, "token_embd_norm.weight"
    ),
}
