"""Random tensors for the tiny models, by the names and shapes that llama.cpp asks of each architecture.

The scales are chosen so that attention is sharp, states fade slowly, and logits spread over several units: a token far
back in a prompt then still moves the text, and the best token wins by more than rounding. Shapes are numpy's (rows
first), so the reverse of GGUF's.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Tensor = NDArray[np.float32]
Named = Iterator[tuple[str, Tensor]]

WIDTH: Final = 64
HEADS: Final = 4
KV_HEADS: Final = 2
HEAD_WIDTH: Final = WIDTH // HEADS
FEED_FORWARD: Final = 128
INNER: Final = 2 * WIDTH
STATES: Final = 16
RANK: Final = 4
KERNEL: Final = 4
SHORT_KERNEL: Final = 3
EXPERTS: Final = 4
ATTENTION_SHARPNESS: Final = 1.6
LOGIT_SPREAD: Final = 4.0


@dataclass(frozen=True)
class Draw:
    """Draws tensors; each depends on the seed and its own name only."""

    seed: int

    def matrix(self, name: str, rows: int, columns: int, gain: float = 1.0) -> tuple[str, Tensor]:
        return self.stack(name, (rows, columns), gain)

    def stack(self, name: str, shape: tuple[int, ...], gain: float = 1.0) -> tuple[str, Tensor]:
        """Entries of spread gain / √(inputs), so that outputs have the spread `gain`."""
        random = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        return name, (random.standard_normal(shape) * gain / np.sqrt(shape[-1])).astype(np.float32)


def ones(name: str, width: int = WIDTH) -> tuple[str, Tensor]:
    return name, np.ones(width, np.float32)


def outer_tensors(draw: Draw, spoken: NDArray[np.bool_], norm: str) -> Named:
    """Embeddings, the last norm, and an output that gives every token outside `spoken` the logit 0."""
    yield draw.matrix("token_embd.weight", len(spoken), WIDTH, np.sqrt(WIDTH))
    yield ones(norm)
    name, output = draw.matrix("output.weight", len(spoken), WIDTH, LOGIT_SPREAD)
    yield name, output * spoken[:, None]


def attention(draw: Draw, block: str) -> Named:
    yield draw.matrix(f"{block}.attn_q.weight", WIDTH, WIDTH, ATTENTION_SHARPNESS)
    yield draw.matrix(f"{block}.attn_k.weight", KV_HEADS * HEAD_WIDTH, WIDTH, ATTENTION_SHARPNESS)
    yield draw.matrix(f"{block}.attn_v.weight", KV_HEADS * HEAD_WIDTH, WIDTH)
    yield draw.matrix(f"{block}.attn_output.weight", WIDTH, WIDTH, 2.0)


def head_norms(block: str) -> Named:
    for which in "qk":
        name, norm = ones(f"{block}.attn_{which}_norm.weight", HEAD_WIDTH)
        yield name, norm * np.float32(ATTENTION_SHARPNESS)


def feed_forward(draw: Draw, block: str) -> Named:
    yield ones(f"{block}.ffn_norm.weight")
    yield draw.matrix(f"{block}.ffn_gate.weight", FEED_FORWARD, WIDTH)
    yield draw.matrix(f"{block}.ffn_up.weight", FEED_FORWARD, WIDTH)
    yield draw.matrix(f"{block}.ffn_down.weight", WIDTH, FEED_FORWARD)


def experts(draw: Draw, block: str) -> Named:
    yield ones(f"{block}.ffn_norm.weight")
    yield draw.matrix(f"{block}.ffn_gate_inp.weight", EXPERTS, WIDTH)
    yield draw.stack(f"{block}.ffn_gate_exps.weight", (EXPERTS, FEED_FORWARD, WIDTH))
    yield draw.stack(f"{block}.ffn_up_exps.weight", (EXPERTS, FEED_FORWARD, WIDTH))
    yield draw.stack(f"{block}.ffn_down_exps.weight", (EXPERTS, WIDTH, FEED_FORWARD))


def mamba(draw: Draw, block: str) -> Named:
    """A selective state space whose slowest states fade over some thousand tokens."""
    yield draw.matrix(f"{block}.ssm_in.weight", 2 * INNER, WIDTH)
    yield draw.matrix(f"{block}.ssm_conv1d.weight", INNER, KERNEL, 2.0)
    yield f"{block}.ssm_conv1d.bias", np.zeros(INNER, np.float32)
    yield draw.matrix(f"{block}.ssm_x.weight", RANK + 2 * STATES, INNER, 2.0)
    yield draw.matrix(f"{block}.ssm_dt.weight", INNER, RANK, 0.5)
    yield f"{block}.ssm_dt.bias", np.full(INNER, -2.0, np.float32)
    yield f"{block}.ssm_a", np.tile(-np.geomspace(0.002, 1.0, STATES, dtype=np.float32), (INNER, 1))
    yield ones(f"{block}.ssm_d", INNER)
    yield draw.matrix(f"{block}.ssm_out.weight", WIDTH, INNER, 2.0)


def mamba_norms(block: str) -> Named:
    yield ones(f"{block}.ssm_dt_norm.weight", RANK)
    yield ones(f"{block}.ssm_b_norm.weight", STATES)
    yield ones(f"{block}.ssm_c_norm.weight", STATES)


def short_convolution(draw: Draw, block: str) -> Named:
    yield draw.matrix(f"{block}.shortconv.conv.weight", WIDTH, SHORT_KERNEL, 1.5)
    yield draw.matrix(f"{block}.shortconv.in_proj.weight", 3 * WIDTH, WIDTH)
    yield draw.matrix(f"{block}.shortconv.out_proj.weight", WIDTH, WIDTH, 2.0)


Layer = Callable[[Draw, str], Named]


def llama_layer(draw: Draw, block: str) -> Named:
    yield ones(f"{block}.attn_norm.weight")
    yield from attention(draw, block)
    yield from feed_forward(draw, block)


def moe_layer(draw: Draw, block: str) -> Named:
    yield ones(f"{block}.attn_norm.weight")
    yield from attention(draw, block)
    yield from experts(draw, block)


def gemma_layer(draw: Draw, block: str) -> Named:
    yield from llama_layer(draw, block)
    yield from head_norms(block)
    yield ones(f"{block}.post_attention_norm.weight")
    yield ones(f"{block}.post_ffw_norm.weight")


def mamba_layer(draw: Draw, block: str) -> Named:
    yield ones(f"{block}.attn_norm.weight")
    yield from mamba(draw, block)


def jamba_layer(draw: Draw, block: str) -> Named:
    """The recurrent kind; jamba's attention layers are llama's."""
    yield from mamba_layer(draw, block)
    yield from mamba_norms(block)
    yield from feed_forward(draw, block)


def convolution_layer(draw: Draw, block: str) -> Named:
    """The recurrent kind of lfm2."""
    yield ones(f"{block}.attn_norm.weight")
    yield from short_convolution(draw, block)
    yield from feed_forward(draw, block)


def normed_layer(draw: Draw, block: str) -> Named:
    """The attention kind of lfm2."""
    yield from llama_layer(draw, block)
    yield from head_norms(block)
