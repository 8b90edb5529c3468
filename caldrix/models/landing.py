"""What every download shares: room on the disk, one at a time, and a check before the file gets its name."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from filelock import FileLock, Timeout

from caldrix.models.gguf_file import check_gguf
from caldrix.protocol.errors import Refused

CHUNK_BYTES: Final = 1 << 20
LOCK_POLL_S: Final = 0.25
REPORT_EVERY_S: Final = 0.1
KEPT_FREE_BYTES: Final = 64 << 20
"""Left on the disk for others."""

Report = Callable[[int, int], None]
"""Gets the bytes that are there and all there will be (0: not known). May raise Refused("cancelled") to end it all."""
Note = Callable[[str], None]
"""Gets a sentence that the person waiting should see."""


def paced(report: Report) -> Report:
    """`report`, called ten times a second, or for every per cent, whatever is oftener; and at the end."""
    last_at, last_done = -math.inf, -1

    def call(done: int, total: int) -> None:
        nonlocal last_at, last_done
        now = time.monotonic()
        step = abs(done - last_done) * 100 >= total or done == total != last_done
        if now - last_at >= REPORT_EVERY_S or (total and done != last_done and step):
            last_at, last_done = now, done
            report(done, total)

    return call


@dataclass(frozen=True)
class Expected:
    """What a file must be, as far as it is known."""

    size: int | None = None
    sha256: str | None = None


@contextlib.contextmanager
def alone(target: Path, report: Report, note: Note) -> Iterator[None]:
    """Only one process at a time fetches `target`; others wait here, and say so."""
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        note(f"another process is fetching {target.name}: waiting for it")
        _wait_for(lock, report)
    try:
        yield
    finally:
        lock.release()


def _wait_for(lock: FileLock, report: Report) -> None:
    while not lock.is_locked:
        report(0, 0)
        with contextlib.suppress(Timeout):
            lock.acquire(timeout=LOCK_POLL_S, poll_interval=LOCK_POLL_S / 5)


def require_room(folder: Path, needed: int, what: str) -> None:
    """Raises Refused("model_refused") where the disk has fewer than `needed` bytes free, and some for others."""
    free = shutil.disk_usage(folder).free
    if free < needed + KEPT_FREE_BYTES:
        raise Refused(
            "model_refused",
            f"{what} needs {needed + KEPT_FREE_BYTES} bytes free in {folder}, and there are {free}: make room, "
            "or set XDG_CACHE_HOME to a larger disk",
            {"needed_bytes": needed + KEPT_FREE_BYTES, "available_bytes": free},
        )


def digest_of(file: BinaryIO, report: Callable[[int], None]) -> hashlib._Hash:
    """The SHA-256 so far of what is left of a file; `report` gets the bytes read."""
    digest = hashlib.sha256()
    done = 0
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
        done += len(chunk)
        report(done)
    return digest


def land(part: Path, target: Path, name: str, digest: str, expected: Expected) -> None:
    """Give a fetched file its name, if it is what was expected. A file that is not is deleted.

    Raises Refused("model_refused").
    """
    try:
        _check(part, name, digest, expected)
    except Refused:
        part.unlink(missing_ok=True)
        raise
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(target)
    _sync_folder(target.parent)
    for left in begun(target):  # from another source, or of a file that has been replaced since
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def begun(target: Path) -> list[Path]:
    """Every file and folder beside `target` that holds some of it."""
    return [
        *target.parent.glob(f"{glob.escape(target.name)}.*part"),
        *target.parent.glob(f"{glob.escape(target.name)}.parts"),
    ]


def _check(part: Path, name: str, digest: str, expected: Expected) -> None:
    size = part.stat().st_size
    if expected.size is not None and size != expected.size:
        raise Refused(
            "model_refused",
            f"{name} came with {size} bytes and should have {expected.size}: what came was deleted; fetch it again",
            {"size_bytes": size, "expected_bytes": expected.size},
        )
    if expected.sha256 and digest != expected.sha256:
        raise Refused(
            "model_refused",
            f"{name} came with the SHA-256 {digest} and should have {expected.sha256}: what came was deleted; "
            "fetch it again, and if that does not help, its source is not to be trusted",
            {"sha256": digest, "expected_sha256": expected.sha256},
        )
    check_gguf(part, f"what came for {name}")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
