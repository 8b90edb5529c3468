"""A model's dimensions from the header of its file, as llama.cpp reads them. Pure, but for `repacks`' processor."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Final

from gguf.constants import GGMLQuantizationType as Quantization

from caldrix.models.fit import Shape
from caldrix.models.header import Header

OTHER_CACHES: Final = frozenset({"minimax-01", "minimax-m3", "deepseek4", "dflash", "qwen4exp", "gemma4-assistant"})
"""Architectures whose caches llama.cpp lays out in a way of their own."""
STATE_AND_ROWS: Final = frozenset({"falcon-h1"})
"""Architectures where every layer has both."""
_REPACKED: Final = frozenset(
    {Quantization.Q4_0, Quantization.Q4_K, Quantization.Q2_K, Quantization.IQ4_NL, Quantization.MXFP4}
)
_REPACKED_ON_ARM: Final = _REPACKED | {Quantization.Q5_K, Quantization.Q6_K, Quantization.Q8_0}


def shape_of(header: Header, machine: str | None = None) -> Shape:
    """The shape; its `unknown` says why, where memory cannot be computed. `machine` as in platform.machine()."""
    keys = _Keys(header)
    layers = keys.number("block_count")
    width = keys.number("embedding_length")
    heads = keys.by_layer("attention.head_count", layers)
    kv_heads = keys.by_layer("attention.head_count_kv", layers, heads)
    most_heads = max(heads, default=0)
    key = keys.number("attention.key_length", width // most_heads if most_heads else 0)
    value = keys.number("attention.value_length", key)
    state = _layer_state(keys, width, most_heads)
    recurrent = _recurrent_layers(keys, kv_heads, layers) if state else [False] * layers
    both = keys.architecture in STATE_AND_ROWS
    rows = [count for count, is_state in zip(kv_heads, recurrent, strict=True) if both or not is_state]
    return Shape(
        weights_bytes=sum(tensor.size for tensor in header.tensors),
        layers=layers,
        heads=most_heads,
        kv_heads=max(kv_heads, default=0),
        key_width=key,
        value_width=value,
        width=width,
        vocabulary=header.lengths.get("tokenizer.ggml.tokens", 0),
        trained_window=keys.number("context_length"),
        kv_elements=sum(rows) * _row_width(keys, key, value),
        state_elements=state * sum(recurrent),
        layer_state_elements=state,
        activations=_activations(keys, width, layers),
        masks=2 if keys.number("attention.sliding_window") else 1,
        repacked_bytes=repacked(header, machine or platform.machine()),
        unknown=_unknown(keys, layers, width, heads, state),
    )


def repacked(header: Header, machine: str) -> int:
    """Bytes of the weights that the processor's kernels keep a rearranged copy of, at most."""
    kinds = _REPACKED_ON_ARM if machine.lower() in ("aarch64", "arm64") else _REPACKED
    return sum(
        tensor.size
        for tensor in header.tensors
        if tensor.kind in kinds and len(tensor.dimensions) > 1 and not tensor.name.startswith("token_embd.")
    )


class _Keys:
    """The header's numbers under its architecture's name."""

    def __init__(self, header: Header) -> None:
        name = header.values.get("general.architecture", b"")
        self.architecture = name.decode("utf-8", "replace") if isinstance(name, bytes) else ""
        self._values = header.values

    def number(self, key: str, default: int = 0) -> int:
        """The greatest, where the key has a value for each layer."""
        value = self._values.get(f"{self.architecture}.{key}", default)
        if isinstance(value, list):
            return int(max(value, default=default))
        return default if isinstance(value, bytes) else int(value)

    def by_layer(self, key: str, layers: int, default: Sequence[int] = ()) -> list[int]:
        value = self._values.get(f"{self.architecture}.{key}")
        if isinstance(value, list):
            return [int(number) for number in (*value, *[0] * layers)][:layers]
        if isinstance(value, int | float):
            return [int(value)] * layers
        return list(default) or [0] * layers

    def any_under(self, prefix: str) -> bool:
        return any(key.startswith(f"{self.architecture}.{prefix}") for key in self._values)


def _row_width(keys: _Keys, key: int, value: int) -> int:
    """Elements of one key and its value. Compressed attention keeps keys alone."""
    if keys.number("attention.key_length_mla"):
        return key
    return max(key, keys.number("attention.key_length_swa")) + max(value, keys.number("attention.value_length_swa"))


def _recurrent_layers(keys: _Keys, kv_heads: Sequence[int], layers: int) -> list[bool]:
    interval = keys.number("full_attention_interval")
    if keys.architecture in STATE_AND_ROWS:
        return [True] * layers
    if interval:
        return [(layer + 1) % interval != 0 for layer in range(layers)]
    if keys.architecture.startswith("nemotron_h"):  # its layers without heads that have a feed-forward keep no state
        wide = keys.by_layer("feed_forward_length", layers)
        return [not count and not ff for count, ff in zip(kv_heads, wide, strict=True)]
    return [not count for count in kv_heads]


def _layer_state(keys: _Keys, width: int, heads: int) -> int:
    """Elements of one recurrent layer's state for one sequence; 0 for a model without such layers."""
    head, convolution = keys.number("wkv.head_size"), max(0, keys.number("ssm.conv_kernel", 4) - 1)
    if head:
        return width * (keys.number("token_shift_count", 2) + head)
    if short := keys.number("shortconv.l_cache"):
        return width * (short - 1)
    if head := keys.number("kda.head_dim"):
        return heads * head * (3 * convolution + head)
    inner, states = keys.number("ssm.inner_size"), keys.number("ssm.state_size")
    if not inner:
        return 0
    return convolution * (inner + 2 * keys.number("ssm.group_count") * states) + states * inner


def _activations(keys: _Keys, width: int, layers: int) -> int:
    """Elements a token takes between layers, at the widest place of a pass."""
    dense = max(keys.by_layer("feed_forward_length", layers), default=0)
    used = keys.number("expert_used_count")
    expert = keys.number("expert_feed_forward_length", dense)
    shared = keys.number("expert_shared_feed_forward_length")
    inner = keys.number("ssm.inner_size") + 2 * keys.number("ssm.group_count") * keys.number("ssm.state_size")
    return 6 * width + max(3 * dense, used * (3 * expert + width) + 3 * shared, 6 * inner)


def _unknown(keys: _Keys, layers: int, width: int, heads: Sequence[int], state: int) -> str:
    if keys.architecture in OTHER_CACHES or keys.any_under("attention.indexer."):
        return f"the architecture {keys.architecture} keeps a cache of its own kind"
    if not layers or not width:
        return f"its header names no layers or width under {keys.architecture or 'its missing architecture'!r}"
    if not any(heads) and not state:
        return f"its header names neither attention heads nor a state under {keys.architecture!r}"
    return ""
