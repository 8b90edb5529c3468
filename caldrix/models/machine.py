"""What this machine gives: memory and cores."""

from __future__ import annotations

import os
from typing import Final

import psutil

MEMORY_SHARE: Final = 0.8
"""Of all memory, what models may take: an editor and a compiler run beside them."""


def memory_limit() -> int:
    """Bytes that the members may take together, when no --memory-limit is given."""
    return int(psutil.virtual_memory().total * MEMORY_SHARE)


def usable_cores() -> int:
    """Physical cores that this process may run on; at least one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))
