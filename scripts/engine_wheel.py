"""The engine's wheel (llama-cpp-python), built for this processor and kept. Standard library only.

pip keeps a wheel that it built by version and not by flags, so it would hand out one that was built another way.
Wheels are therefore built past pip's cache and kept in folders named by version and a hash of all that shapes them.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine_flags import YOUNG_OPTIONS, cmake_args, processor_flags
from steps import SetUpError, locked, run_step, say

GIB = 1024**3
COMPILERS = {"CC": ("cc", "gcc", "clang"), "CXX": ("c++", "g++", "clang++")}
"""The variable that names a compiler, and where CMake looks when it is not set."""
PROBES = {
    "CC": ("c", '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n'),
    "CXX": ("c++", '#include <string>\nint main() { return std::string("").size() != 0; }\n'),
}
HOW_TO_GET = "Debian or Ubuntu: apt install build-essential; Fedora: dnf install gcc-c++; macOS: xcode-select --install"


@dataclass(frozen=True)
class Build:
    """One way to build the engine; `name` stands for all that shapes the result."""

    version: str
    flags: str
    name: str


def chosen_build(version: str, env: Mapping[str, str]) -> Build:
    """The build for this machine: with the user's CMAKE_ARGS exactly, else with flags for this processor."""
    flags = env.get("CMAKE_ARGS") or " ".join(_own_flags(env))
    return Build(version, flags, f"{version}-{_fingerprint(flags, env)}")


def build_or_find(build: Build, python: Path, env: Mapping[str, str]) -> Path:
    """The wheel of this build, built now when it was not kept. Raises SetUpError."""
    folder = _wheels_folder(env) / build.name
    if found := _kept(folder):
        return found
    _check_compilers(env)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f"{build.name}.lock", "another ./run builds the same engine; waiting for it"):
        return _kept(folder) or _build(build, python, folder, env)


def _wheels_folder(env: Mapping[str, str]) -> Path:
    cache = env.get("XDG_CACHE_HOME", "")
    # The XDG base directories have to be absolute; a relative one counts as not set.
    base = Path(cache) if cache.startswith("/") else Path.home() / ".cache"
    return base / "aerix" / "wheels"


def _fingerprint(flags: str, env: Mapping[str, str]) -> str:
    """A hash of what makes one build differ from another: flags, compilers, Python, system library, machine."""
    variables = [f"{name}={env[name]}" for name in (*COMPILERS, "CFLAGS", "CXXFLAGS", "LDFLAGS") if env.get(name)]
    place = [sysconfig.get_config_var("SOABI") or "", *platform.libc_ver(), platform.system(), platform.machine()]
    return hashlib.sha256("\n".join([flags, *variables, *place]).encode()).hexdigest()[:16]


def _own_flags(env: Mapping[str, str]) -> list[str]:
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        cpuinfo = ""
    features = processor_flags(cpuinfo)
    compiler = _compiler("CC", env)
    # Only where the processor has what a young option stands for does it matter whether the compiler knows it.
    wanted = cmake_args(platform.system(), platform.machine(), features)
    asked = [option for flag, option in YOUNG_OPTIONS.items() if f"-D{flag}=ON" in wanted]
    unknown = {option for option in asked if compiler and _refuses([*compiler, option], "CC")}
    if unknown:
        say(f"{compiler[0]} does not know {', '.join(sorted(unknown))}: the engine is built without it.")
    return cmake_args(platform.system(), platform.machine(), features, unknown)


def _kept(folder: Path) -> Path | None:
    return next(folder.glob("*.whl"), None)


def _compiler(variable: str, env: Mapping[str, str]) -> list[str]:
    """The compiler's command, as words; empty when there is none."""
    if named := env.get(variable, "").split():
        return named if shutil.which(named[0]) else []
    return next(([name] for name in COMPILERS[variable] if shutil.which(name)), [])


def _refuses(command: list[str], variable: str) -> str:
    """What the compiler says when it cannot compile a small program; empty when it can."""
    language, source = PROBES[variable]
    with tempfile.TemporaryDirectory() as folder:
        argv = [*command, "-x", language, "-", "-o", f"{folder}/probe"]
        done = subprocess.run(argv, input=source, capture_output=True, text=True, errors="replace", check=False)
    return "" if done.returncode == 0 else (done.stderr.strip() or f"exit {done.returncode}")


def _check_compilers(env: Mapping[str, str]) -> None:
    for variable, language in (("CC", "C"), ("CXX", "C++")):
        command = _compiler(variable, env)
        if not command:
            named = f"{variable}={env[variable]} names no program" if env.get(variable) else "none was found on PATH"
            raise SetUpError(f"A {language} compiler is needed to build the engine and {named}. {HOW_TO_GET}.")
        if trouble := _refuses(command, variable):
            first = trouble.split("\n")[0]
            raise SetUpError(f"{command[0]} cannot compile a small {language} program ({first}). {HOW_TO_GET}.")


def _build(build: Build, python: Path, folder: Path, env: Mapping[str, str]) -> Path:
    log = folder.parent / f"{build.name}.log"
    log.write_bytes(f"CMAKE_ARGS={build.flags}\n".encode())
    for left in folder.parent.glob(f"{build.name}.part-*"):
        shutil.rmtree(left)
    say("the engine is compiled once for this machine, which takes 5 to 15 minutes")
    part = tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{build.name}.part-")
    with part as place, tempfile.TemporaryDirectory(prefix="aerix-engine-") as room:
        out = Path(place) / "out"
        jobs = env.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(_jobs())
        build_env = {**env, "CMAKE_ARGS": build.flags, "CMAKE_BUILD_PARALLEL_LEVEL": jobs, "TMPDIR": room}
        pip = [str(python), "-m", "pip", "wheel", "--no-cache-dir", "--no-deps", "--no-binary", "llama-cpp-python"]
        argv = [*pip, "-v", "-w", str(out), f"llama-cpp-python=={build.version}"]
        run_step("building the engine", argv, log, build_env)
        # Renamed as one piece, so a folder that is there holds a whole wheel.
        out.rename(folder)
    if wheel := _kept(folder):
        return wheel
    raise SetUpError(f"pip built llama-cpp-python {build.version} but left no wheel in {folder}; its log is {log}.")


def _jobs() -> int:
    """Compilers at once: one a processor, and no more than memory holds at a GiB each."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(processors, memory // GIB))
