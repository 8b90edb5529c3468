"""Is the engine's library there, does it load, and was it built for this processor?"""

from __future__ import annotations

import importlib.metadata
import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from caldrix.commands.checks import Check, fail, ok, warn
from caldrix.commands.processor import AMX, ARM_FEATURES, X86_FEATURES, built_features, cpu_features, rebuild_command

LIBRARY: Final = "llama-cpp-python"
LOAD_TIMEOUT_S: Final = 120
COMMAND: Final = (sys.executable, "-m", "caldrix.commands.library_facts")


@dataclass(frozen=True)
class Library:
    """What the child printed, or what became of it, as the end of a sentence."""

    facts: Mapping[str, Any] | None
    trouble: str = ""


def ask_library() -> Library:
    """Load the library in a child process. Blocks for about a second."""
    try:
        done = subprocess.run(
            COMMAND, stdin=subprocess.DEVNULL, capture_output=True, timeout=LOAD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Library(None, f"did not load within {LOAD_TIMEOUT_S} s")
    except OSError as error:
        return Library(None, f"could not be tried: {error.strerror}")
    if done.returncode < 0:
        return Library(None, f"ended its process with {signal.Signals(-done.returncode).name} while it loaded")
    try:
        return Library(json.loads(done.stdout))
    except ValueError:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return Library(None, f"cannot be loaded: {lines[-1][:300] if lines else f'exit code {done.returncode}'}")


def check_build(library: Library, flags: Set[str]) -> list[Check]:
    """`flags` are the processor's, as /proc/cpuinfo names them. Pure but for the packages it looks up."""
    wanted = wanted_version()
    rebuild = rebuild_command(wanted, flags)
    if library.facts is None:
        return [fail("engine", f"{LIBRARY} {library.trouble}", rebuild)]
    built = built_features(str(library.facts["system_info"]))
    checks = [version_check(str(library.facts["version"]), wanted, rebuild), kernels_check(built, flags, rebuild)]
    if AMX in built:
        checks.append(_amx_check(rebuild))
    return [*checks, wait_check(built, library.facts.get("wait_policy"), library.facts.get("spins"))]


def wanted_version() -> str | None:
    """The version of the library that this package names; None where it is not installed as a package."""
    try:
        needed = importlib.metadata.requires("aerix") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = (re.match(rf"{LIBRARY}==([\w.]+)", line) for line in needed)
    return next((match[1] for match in found if match), None)


def version_check(version: str, wanted: str | None, rebuild: str) -> Check:
    if wanted and version != wanted:
        return warn("engine", f"{LIBRARY} {version}; this caldrix was tested with {wanted}", rebuild, version=version)
    return ok("engine", f"{LIBRARY} {version}", version=version)


def kernels_check(built: Set[str], flags: Set[str], rebuild: str) -> Check:
    """A build for more than the processor has dies; one for less is slow."""
    known = built & (X86_FEATURES.keys() | ARM_FEATURES.keys())
    found = f"built for {', '.join(sorted(known)) or 'no instruction sets beyond the base'}"
    facts = {"built": sorted(built)}
    if not flags:
        return ok("kernels", f"{found}; what this processor has is not known here", **facts)
    has = cpu_features(flags)
    if extra := sorted(known - has):
        return fail(
            "kernels", f"{found}; this processor has no {', '.join(extra)}, and will stop there", rebuild, **facts
        )
    if missing := sorted(has - known):
        lacks = f"{found}; this processor also has {', '.join(missing)}, which this build leaves idle"
        return warn("kernels", lacks, rebuild, missing=missing, **facts)
    return ok("kernels", f"{found}: all that this processor has", **facts)


def _amx_check(rebuild: str) -> Check:
    found = "built with AMX, which many virtual machines show and do not give: models then load without fast kernels"
    return warn("AMX", found, rebuild)


def wait_check(built: Set[str], policy: object, spins: object) -> Check:
    """Threads that spin at barriers for long collapse when other programs use the cores."""
    if "OPENMP" not in built:
        return ok("waiting threads", "the engine's own threads, without OpenMP", wait_policy=None)
    facts = {"wait_policy": policy, "spins": spins}
    if policy is None and spins is not None:
        return ok("waiting threads", f"OpenMP, which spins shortly and then sleeps (GOMP_SPINCOUNT={spins})", **facts)
    if str(policy).upper() == "PASSIVE":
        found = "OpenMP with OMP_WAIT_POLICY=PASSIVE: it sleeps at once, and more than one thread gains little"
    else:
        found = f"OpenMP with OMP_WAIT_POLICY={policy or 'unset'}: it spins, and collapses when other programs run"
    return warn("waiting threads", found, "unset OMP_WAIT_POLICY and start the pool again", **facts)
