"""Which CMake flags the engine is built with on a given processor. Pure, and standard library only.

On x86-64 Linux the instruction sets are named one by one instead of by `-march=native`: that one takes AMX from the
processor's flags, and many virtual machines show AMX without giving it, so the first tile instruction kills the
process. Each flag is given as ON or OFF, because ggml turns some of them on by itself once GGML_NATIVE is off.
"""

from __future__ import annotations

from collections.abc import Set

# The flags of ggml's CMake, and what /proc/cpuinfo must name for each: one entry for every -m option it turns on.
X86_FLAGS: dict[str, frozenset[str]] = {
    "GGML_SSE42": frozenset({"sse4_2"}),
    "GGML_AVX": frozenset({"avx"}),
    "GGML_AVX2": frozenset({"avx2"}),
    "GGML_BMI2": frozenset({"bmi2"}),
    "GGML_FMA": frozenset({"fma"}),
    "GGML_F16C": frozenset({"f16c"}),
    "GGML_AVX_VNNI": frozenset({"avx_vnni"}),
    "GGML_AVX512": frozenset({"avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"}),
    "GGML_AVX512_VBMI": frozenset({"avx512vbmi"}),
    "GGML_AVX512_VNNI": frozenset({"avx512_vnni"}),
    "GGML_AVX512_BF16": frozenset({"avx512_bf16"}),
}

# The compiler option behind a flag that compilers still in use do not all know.
YOUNG_OPTIONS = {"GGML_AVX_VNNI": "-mavxvnni", "GGML_AVX512_BF16": "-mavx512bf16"}

# The multimodal library and the command line tools are a third of the build and used by nothing here.
PARTS = ("-DLLAVA_BUILD=OFF", "-DLLAMA_BUILD_TOOLS=OFF", "-DLLAMA_CURL=OFF")


def processor_flags(cpuinfo: str) -> frozenset[str]:
    """The feature names of the first processor in the text of /proc/cpuinfo; empty when it names none."""
    for line in cpuinfo.split("\n"):
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


def cmake_args(system: str, machine: str, features: Set[str], unknown_options: Set[str] = frozenset()) -> list[str]:
    """CMake arguments for a build that runs on this machine.

    `system` and `machine` are as `platform` names them, `features` as /proc/cpuinfo does; `unknown_options` are
    options of YOUNG_OPTIONS that the compiler refuses. Where the features are not known the compiler decides.
    """
    if system != "Linux" or machine not in ("x86_64", "amd64") or not features:
        return [*PARTS, "-DGGML_NATIVE=ON"]
    return [*PARTS, "-DGGML_NATIVE=OFF", *(f"-D{flag}={_state(flag, features, unknown_options)}" for flag in X86_FLAGS)]


def _state(flag: str, features: Set[str], unknown_options: Set[str]) -> str:
    needed = X86_FLAGS[flag]
    # The compiler's options for VBMI, VNNI and BF16 each turn AVX-512F on as well.
    if flag.startswith("GGML_AVX512"):
        needed = needed | X86_FLAGS["GGML_AVX512"]
    return "ON" if needed <= features and YOUNG_OPTIONS.get(flag) not in unknown_options else "OFF"
