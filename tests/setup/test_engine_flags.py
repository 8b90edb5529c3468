"""Which flags the engine is built with on which processor."""

from __future__ import annotations

import pytest
from engine_flags import X86_FLAGS, cmake_args, processor_flags

OLD = frozenset({"sse4_2"})
HASWELL = OLD | {"avx", "avx2", "bmi2", "fma", "f16c"}
SKYLAKE_SERVER = HASWELL | {"avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"}
SAPPHIRE_RAPIDS = SKYLAKE_SERVER | {"avx512vbmi", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8"}
ALDER_LAKE = HASWELL | {"avx_vnni"}


def on(args: list[str]) -> set[str]:
    return {arg[len("-DGGML_") : -len("=ON")] for arg in args if arg.startswith("-DGGML_") and arg.endswith("=ON")}


AVX2 = {"SSE42", "AVX", "AVX2", "BMI2", "FMA", "F16C"}


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (OLD, {"SSE42"}),
        (HASWELL, AVX2),
        (ALDER_LAKE, AVX2 | {"AVX_VNNI"}),
        (SKYLAKE_SERVER, AVX2 | {"AVX512"}),
        (SAPPHIRE_RAPIDS, AVX2 | {"AVX_VNNI", "AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16"}),
        # A part of AVX-512 alone would still turn on the whole in the compiler.
        (HASWELL | {"avx512f", "avx512_vnni"}, AVX2),
    ],
)
def test_x86_flags_are_those_of_the_processor(features: frozenset[str], expected: set[str]) -> None:
    assert on(cmake_args("Linux", "x86_64", features)) == expected


def test_every_x86_flag_is_given_and_amx_never() -> None:
    args = cmake_args("Linux", "x86_64", SAPPHIRE_RAPIDS)
    assert {flag for flag in X86_FLAGS if any(arg.startswith(f"-D{flag}=") for arg in args)} == set(X86_FLAGS)
    assert "-DGGML_NATIVE=OFF" in args
    assert not any("AMX" in arg for arg in args)


def test_a_compiler_that_does_not_know_an_option_costs_that_flag_only() -> None:
    known, cut = (cmake_args("Linux", "x86_64", SAPPHIRE_RAPIDS, unknown) for unknown in ((), {"-mavx512bf16"}))
    assert on(known) - on(cut) == {"AVX512_BF16"}


@pytest.mark.parametrize(
    ("system", "machine", "features"),
    [("Linux", "aarch64", HASWELL), ("Darwin", "x86_64", HASWELL), ("Darwin", "arm64", OLD), ("Linux", "x86_64", ())],
)
def test_elsewhere_the_compiler_decides(system: str, machine: str, features: frozenset[str]) -> None:
    assert on(cmake_args(system, machine, frozenset(features))) == {"NATIVE"}


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu sse4_2 avx\n\nprocessor\t: 1\nflags\t\t: fpu\n", {"fpu", "sse4_2", "avx"}),
        ("vmx flags\t: vnmi\nflags\t: avx2\n", {"avx2"}),
        ("processor\t: 0\nFeatures\t: fp asimd\n", set()),
        ("", set()),
    ],
)
def test_processor_flags(cpuinfo: str, expected: set[str]) -> None:
    assert processor_flags(cpuinfo) == expected
