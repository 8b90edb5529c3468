"""What the machine gives: processor, cores, memory, disk."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Set
from pathlib import Path, PurePosixPath
from typing import Final

import psutil

from caldrix.commands.checks import Check, fail, ok, warn
from caldrix.commands.processor import ARM_FEATURES, X86_FEATURES, cpu_features
from caldrix.commands.table import in_units
from caldrix.models.machine import control_group_limit, memory_limit, usable_cores
from caldrix.models.refs import models_dir
from caldrix.protocol.messages import PoolStatus

SMALL_DISK_BYTES: Final = 2 << 30
NO_DISK_BYTES: Final = 100 << 20
BUSY_SHARE: Final = 0.75


def check_machine(name: str, flags: Set[str], pool: PoolStatus | None) -> list[Check]:
    """`name` and `flags` are the processor's, `pool` is who answered at the socket."""
    return [cpu_check(name, flags), cores_now(pool), memory_now(pool), disk_check(models_dir())]


def cpu_check(name: str, flags: Set[str]) -> Check:
    features = [feature for feature in (*X86_FEATURES, *ARM_FEATURES) if feature in cpu_features(flags)]
    found = f"{name}: {', '.join(features) or 'its features are not known here'}"
    x86 = bool({"sse2", "pni"} & flags)
    if x86 and "AVX2" not in features:
        fix = "nothing, but a newer processor: take a smaller model (caldrix models)"
        return warn("processor", f"{found}; without AVX2 models run several times slower", fix, features=features)
    return ok("processor", found, features=features)


def cores_now(pool: PoolStatus | None) -> Check:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = {member.member: member.threads for member in pool.members} if pool else {}
    return cores_check(usable_cores(), allowed, cpu_quota(), threads, os.getloadavg()[0])


def cores_check(cores: int, allowed: int, quota: float | None, threads: dict[str, int], load: float) -> Check:
    """`cores` are physical ones that may be used, `threads` those of each loaded member. Pure."""
    limit = f", of which the container may use {quota:g}" if quota else ""
    using = "".join(f"; {member} uses {count}" for member, count in threads.items() if count)
    found = f"{cores} cores, {allowed} logical{limit}; load {load:.1f}{using}"
    facts = {"cores": cores, "logical": allowed, "quota": quota, "load": round(load, 2), "threads": threads}
    room = max(1, int(min(quota, cores))) if quota else cores
    many = [member for member, count in threads.items() if count > room]
    if many:
        return warn("cores", f"{found}: more threads than cores", f"start the pool with --threads {room}", **facts)
    if quota and quota < cores:
        return warn("cores", found, f"give members --threads {room}, or the container more processor time", **facts)
    if load > allowed * (1 + BUSY_SHARE):
        return warn("cores", f"{found}: other programs want them too", "end what need not run (see top)", **facts)
    return ok("cores", found, **facts)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Processors' worth of time that the control groups (version 1 or 2) around this process allow; None: no limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    quotas = [quota for line in lines for quota in _quotas(root / "sys/fs/cgroup", line)]
    return min(quotas, default=None)


def _quotas(mount: Path, line: str) -> list[float]:
    _, controllers, path = line.split(":", 2)
    group = PurePosixPath(path.lstrip("/"))
    folders = (group, *group.parents)
    if controllers == "":
        texts = [_words(mount / folder / "cpu.max") for folder in folders]
    elif "cpu" in controllers.split(","):
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        texts = [[word for name in names for word in _words(mount / "cpu" / folder / name)] for folder in folders]
    else:
        return []
    return [int(text[0]) / int(text[1]) for text in texts if len(text) == 2 and all(word.isdecimal() for word in text)]


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def memory_now(pool: PoolStatus | None) -> Check:
    memory = psutil.virtual_memory()
    limit = pool.memory.limit_bytes if pool else memory_limit()
    used = pool.memory.used_bytes if pool else 0
    return memory_check(memory.total, memory.available, control_group_limit(), limit, used)


def memory_check(installed: int, available: int, group: int | None, limit: int, used: int) -> Check:
    """`limit` is what members may take together, `used` what those of the pool need. Bytes. Pure."""
    container = f", {in_units(group)} for this container" if group and group < installed else ""
    found = (
        f"{in_units(installed)} installed{container}, {in_units(available)} free now; models may take "
        f"{in_units(limit)}, and the pool's need {in_units(used)}"
    )
    facts = {"installed_bytes": installed, "available_bytes": available, "limit_bytes": limit, "used_bytes": used}
    if limit > (most := min(installed, group or installed)):
        fix = f"start the pool with --memory-limit {most * 4 // 5}"
        return fail("memory", f"{found}: the limit is more than there is", fix, **facts)
    if available < (limit - used) // 4:
        fix = "close what need not run, or start the pool with a lower --memory-limit"
        return warn("memory", f"{found}: other programs hold most of it", fix, **facts)
    return ok("memory", found, **facts)


def disk_check(folder: Path) -> Check:
    """Room where models are kept; the folder may not be there yet."""
    there = next((place for place in (folder, *folder.parents) if place.exists()), Path("/"))
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return fail("disk", f"{there} cannot be looked at: {error.strerror}", "set XDG_CACHE_HOME to another folder")
    facts = {"folder": str(folder), "free_bytes": free}
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        fix = f"make {there} writable for you, or set XDG_CACHE_HOME to a folder that is"
        return fail("disk", f"models go to {folder}, and {there} cannot be written", fix, **facts)
    found = f"{in_units(free)} free for models in {folder}"
    fix = (
        f"make room, or set XDG_CACHE_HOME to a folder on another disk{'' if sys.platform == 'darwin' else ' (df -h)'}"
    )
    if free < NO_DISK_BYTES:
        return fail("disk", found, fix, **facts)
    return (
        warn("disk", f"{found}: few models are smaller", fix, **facts)
        if free < SMALL_DISK_BYTES
        else ok("disk", found, **facts)
    )
