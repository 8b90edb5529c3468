"""What the processor can do, what the engine was built for, and how to build it for this processor. Pure but one read.

The names on the left are those of the engine's own report; those on the right are /proc/cpuinfo's.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Set
from pathlib import Path
from typing import Final

X86_FEATURES: Final[dict[str, frozenset[str]]] = {
    "SSE3": frozenset({"pni"}),
    "SSSE3": frozenset({"ssse3"}),
    "AVX": frozenset({"avx"}),
    "AVX2": frozenset({"avx2"}),
    "F16C": frozenset({"f16c"}),
    "FMA": frozenset({"fma"}),
    "BMI2": frozenset({"bmi2"}),
    "AVX_VNNI": frozenset({"avx_vnni"}),
    "AVX512": frozenset({"avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"}),
    "AVX512_VBMI": frozenset({"avx512vbmi"}),
    "AVX512_VNNI": frozenset({"avx512_vnni"}),
    "AVX512_BF16": frozenset({"avx512_bf16"}),
}
ARM_FEATURES: Final[dict[str, frozenset[str]]] = {
    "NEON": frozenset({"asimd"}),
    "FP16_VA": frozenset({"asimdhp"}),
    "DOTPROD": frozenset({"asimddp"}),
    "MATMUL_INT8": frozenset({"i8mm"}),
    "SVE": frozenset({"sve"}),
}
AMX: Final = "AMX_INT8"
BUILT_FLAGS: Final = ("SSE42", "AVX", "AVX2", "BMI2", "FMA", "F16C", "AVX_VNNI")
BUILT_AVX512: Final = ("AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16")
PARTS: Final = ("-DLLAVA_BUILD=OFF", "-DLLAMA_BUILD_TOOLS=OFF", "-DLLAMA_CURL=OFF")


def built_features(system_info: str) -> frozenset[str]:
    """The names that stand as 1 in the engine's report: `CPU : SSE3 = 1 | AVX = 1 | …`."""
    return frozenset(name for name, value in re.findall(r"(\w+) = (\d+)", system_info) if value != "0")


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """The feature names of the first processor in the text of /proc/cpuinfo; empty when it names none."""
    for line in cpuinfo.split("\n"):
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def model_name(cpuinfo: str) -> str:
    """The processor's name, as /proc/cpuinfo or else the platform gives it."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def read_cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cpu_features(flags: Set[str]) -> frozenset[str]:
    """The processor's features by the engine's names; empty where the flags are not known."""
    known = X86_FEATURES | ARM_FEATURES
    return frozenset(name for name, needed in known.items() if needed <= flags)


def rebuild_command(version: str | None, flags: Set[str]) -> str:
    """What builds the engine for a processor of these flags, without AMX: what `./run` does in a checkout."""
    arguments = [*PARTS, *_instruction_sets(flags)]
    install = "pip install --force-reinstall --no-deps --no-cache-dir --no-binary llama-cpp-python"
    return f'CMAKE_ARGS="{" ".join(arguments)}" {install} llama-cpp-python{f"=={version}" if version else ""}'


def _instruction_sets(flags: Set[str]) -> list[str]:
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "amd64") or not flags:
        return ["-DGGML_NATIVE=ON"]
    has = cpu_features(flags) | ({"SSE42"} if "sse4_2" in flags else set())
    states = {name: name in has for name in BUILT_FLAGS} | {
        name: name in has and "AVX512" in has for name in BUILT_AVX512
    }
    return ["-DGGML_NATIVE=OFF", *(f"-DGGML_{name}={'ON' if on else 'OFF'}" for name, on in states.items())]
