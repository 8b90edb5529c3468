"""Shapes from headers: written ones, and the tiny models', whose caches llama.cpp itself then tells the size of."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import get_args

import llama_cpp
import pytest
from gguf.constants import GGMLQuantizationType as Quantization

from caldrix.engine import llama_model
from caldrix.engine.llama_model import LlamaModel
from caldrix.models.fit import MICRO_BATCH_ROWS, Shape, footprint
from caldrix.models.header import Header, Tensor, Value, read_header
from caldrix.models.shape import shape_of
from tests.doubles.tiny_models import Kind, write_tiny

MIB = 1 << 20
COMMON: dict[str, Value] = {
    "block_count": 4,
    "embedding_length": 64,
    "attention.head_count": 4,
    "feed_forward_length": 128,
    "context_length": 2048,
}
SSM: dict[str, Value] = {"ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 16, "ssm.group_count": 1}
SSM_STATE = 3 * (128 + 2 * 16) + 16 * 128


def shape(architecture: str, **keys: Value) -> Shape:
    named = {f"{architecture}.{key.replace('__', '.')}": value for key, value in (COMMON | keys).items()}
    return shape_of(Header({"general.architecture": architecture.encode(), **named}, {}, ()), "x86_64")


@pytest.mark.parametrize(
    ("architecture", "keys", "elements", "state"),
    [
        ("llama", {}, 4 * 4 * 32, 0),
        ("llama", {"attention.head_count_kv": 1}, 4 * 1 * 32, 0),
        ("openelm", {"attention.head_count_kv": [1, 1, 2, 4]}, 8 * 32, 0),
        ("gemma3", {"attention.key_length": 256, "attention.value_length": 256}, 4 * 4 * 512, 0),
        (
            "gemma4",
            {"attention.key_length": 8, "attention.value_length": 8, "attention.key_length_swa": 32},
            4 * 4 * 40,
            0,
        ),
        (
            "deepseek2",
            {"attention.head_count_kv": 1, "attention.key_length": 576, "attention.key_length_mla": 192},
            4 * 576,
            0,
        ),
        ("mamba", {"attention.head_count": 0, **SSM}, 0, 4 * SSM_STATE),
        ("jamba", {"attention.head_count_kv": [0, 2, 0, 2], **SSM}, 2 * 2 * 32, 2 * SSM_STATE),
        (
            "nemotron_h",
            {"attention.head_count_kv": [0, 2, 0, 0], "feed_forward_length": [0, 0, 8, 0], **SSM},
            64,
            2 * SSM_STATE,
        ),
        ("falcon-h1", {"attention.head_count_kv": 2, **SSM}, 4 * 2 * 32, 4 * SSM_STATE),
        ("qwen3next", {"full_attention_interval": 4, "attention.head_count_kv": 2, **SSM}, 64, 3 * SSM_STATE),
        ("lfm2", {"attention.head_count_kv": [0, 2, 0, 2], "shortconv.l_cache": 3}, 2 * 2 * 32, 2 * 128),
        ("rwkv7", {"attention.head_count": 0, "wkv.head_size": 64}, 0, 4 * 64 * 66),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rows_and_states_by_architecture(architecture: str, keys: dict[str, Value], elements: int, state: int) -> None:
    found = shape(architecture, **keys)
    assert (found.kv_elements, found.state_elements, found.unknown) == (elements, state, "")


@pytest.mark.parametrize(
    ("architecture", "keys"),
    [
        ("minimax-m3", {}),
        ("glm-dsa", {"attention.indexer.head_count": 4}),
        ("llama", {"block_count": 0}),
        ("llama", {"attention.head_count": 0}),
    ],
)
def test_what_cannot_be_computed_says_why(architecture: str, keys: dict[str, Value]) -> None:
    assert architecture in shape(architecture, **keys).unknown


@pytest.mark.parametrize(("machine", "size"), [("x86_64", 1), ("arm64", 11)])
def test_the_copies_depend_on_the_processor(machine: str, size: int) -> None:
    tensors = (
        Tensor("token_embd.weight", (64, 8), Quantization.Q4_K, 100),
        Tensor("blk.0.attn_q.weight", (64, 8), Quantization.Q4_K, 1),
        Tensor("blk.0.attn_k.weight", (64, 8), Quantization.Q6_K, 10),
        Tensor("blk.0.attn_norm.weight", (64,), Quantization.F32, 1000),
    )
    assert shape_of(Header({"general.architecture": b"llama"}, {}, tensors), machine).repacked_bytes == size


@pytest.mark.parametrize("sequences", [1, 32])
@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_tiny_model_takes_what_llama_cpp_says(kind: Kind, sequences: int, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf", kind)
    model = LlamaModel(path)
    try:
        told = told_sizes(model, 2048, sequences)
        assert model.shape.unknown == "" and model.shape == shape_of(read_header(path))
    finally:
        model.close()
    rows, states = 2048 * model.shape.row_bytes, sequences * model.shape.state_bytes
    assert abs(rows - told["KV"]) <= 0.02 * MIB and abs(states - told["RS"]) <= 0.02 * MIB
    fixed = footprint(model.shape, 0, 0) - compute_only(model.shape)
    computed = footprint(model.shape, 2048, sequences) - fixed - rows - states
    assert told["compute"] <= computed <= 1.6 * told["compute"] + 1.2 * MIB


def compute_only(shape: Shape) -> int:
    """What is left of the compute buffers without cells and sequences."""
    return MICRO_BATCH_ROWS * 4 * ((shape.activations or 0) + shape.vocabulary)


def told_sizes(model: LlamaModel, window: int, sequences: int) -> dict[str, float]:
    """Bytes of the buffers by their kind, from the log of a context that is opened."""
    lines: list[str] = []
    callback = llama_cpp.llama_log_callback(lambda _level, text, _data: lines.append(text.decode()))
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = window, 512, MICRO_BATCH_ROWS, sequences
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.swa_full = params.kv_unified = True
    llama_cpp.llama_free(llama_cpp.llama_init_from_model(model.handle, params))
    llama_cpp.llama_log_set(llama_model._LOG_CALLBACK, ctypes.c_void_p(0))
    sizes = {"KV": 0.0, "RS": 0.0, "compute": 0.0}
    for kind, size in re.findall(r"(KV|RS|compute) buffer size = +([\d.]+) MiB", "".join(lines)):
        sizes[kind] += float(size) * MIB
    return sizes
