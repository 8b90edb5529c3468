"""What a run was made on: the machine, the versions, and how busy the machine was."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Final

import psutil

PACKAGES: Final = ("llama-cpp-python", "llguidance", "numpy")


def machine() -> str:
    """Processor, cores and memory."""
    memory = psutil.virtual_memory().total / 2**30
    return f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"


def versions() -> str:
    """Of caldrix and what its speed depends on."""
    found = [f"caldrix {importlib.metadata.version('aerix')}"]
    return ", ".join([*found, *(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)])


def load() -> str:
    """The load of the last minute: beside a benchmark of N threads it is about N where nothing else runs."""
    return f"{os.getloadavg()[0]:.1f}"


def settings() -> str:
    """What the environment sets for thread libraries."""
    names = sorted(name for name in os.environ if name.startswith(("OMP_", "GOMP_", "GGML_")))
    return ", ".join(f"{name}={os.environ[name]}" for name in names) or "none"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").split("\n")
    except OSError:
        return platform.processor() or "a processor it does not name"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "a processor it does not name"
