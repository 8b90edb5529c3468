"""What this machine gives: memory and cores."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Final

import psutil

MEMORY_SHARE: Final = 0.8
"""Of all memory, what models may take: an editor and a compiler run beside them."""


def memory_limit() -> int:
    """Bytes that the members may take together, when no --memory-limit is given."""
    installed = psutil.virtual_memory().total
    return int(min(installed, control_group_limit() or installed) * MEMORY_SHARE)


def control_group_limit(root: Path = Path("/")) -> int | None:
    """The least memory limit, in bytes, of the control groups (version 1 or 2) around this process; None without one.

    A container sees the whole machine's memory and is killed at its group's limit.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    limits = [limit for line in lines for limit in _limits(root / "sys/fs/cgroup", line)]
    return min(limits, default=None)


def _limits(mount: Path, line: str) -> list[int]:
    """Of one line `number:controllers:path`: the limits of that group and of those it lies in."""
    _, controllers, path = line.split(":", 2)
    if controllers == "":
        base, name = mount, "memory.max"
    elif "memory" in controllers.split(","):
        base, name = mount / "memory", "memory.limit_in_bytes"
    else:
        return []
    group = PurePosixPath(path.lstrip("/"))
    limits = [_limit(base / folder / name) for folder in (group, *group.parents)]
    return [limit for limit in limits if limit]


def _limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def usable_cores() -> int:
    """Physical cores that this process may run on; at least one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))
