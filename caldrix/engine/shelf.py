"""Stored prefixes on disk, so that a pool that starts again is warm. One file a piece, each with its checksum.

A folder belongs to one model file and one build of the engine, by their hashes: rows mean nothing to another. It
holds what prompts said, as numbers, so only its owner may read it. Files are written by a thread of their own, in the
order in which pieces came, and appear whole or not at all; a damaged one is dropped and costs a prefill.
"""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final

import cbor2
import numpy as np
from filelock import FileLock, Timeout

from caldrix.engine.prefix import Header, Ids
from caldrix.protocol.errors import Refused

log = logging.getLogger(__name__)

MAGIC: Final = b"caldrix rows 1\n"
LENGTH: Final = struct.Struct(">I")
MAX_HEADER: Final = 1 << 20
SUFFIX: Final = ".rows"
UNUSED_SECONDS: Final = 30 * 24 * 3600
"""A folder that was not opened for so long belongs to a model or a build that is gone."""
FLUSH_SECONDS: Final = 20.0


class DiskShelf:
    """See `caldrix.engine.prefix.Shelf`. `budget` in bytes. Raises Refused("busy") while another pool uses the folder,
    OSError where it cannot be made."""

    def __init__(self, root: Path, identity: str, budget: int) -> None:
        self.budget = budget
        self._folder = root / identity
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = FileLock(self._folder / "lock", blocking=False)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise Refused("busy", f"another pool keeps its prefixes of this model in {root}") from error
        os.utime(self._folder)
        _sweep(root, self._folder)
        self._waiting: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self._unwritten: dict[str, bytes] = {}
        self._guard = threading.Lock()
        self._writer = threading.Thread(target=self._write_all, name="shelf", daemon=True)
        self._writer.start()

    def write(self, key: str, parent: str, start: int, ids: Ids, data: bytes) -> int:
        head = cbor2.dumps({"parent": parent, "start": start, "ids": ids.astype("<i4").tobytes(), "sum": _sum(data)})
        with self._guard:
            self._unwritten[key] = data
        self._waiting.put((key, MAGIC + LENGTH.pack(len(head)) + head))
        return len(MAGIC) + LENGTH.size + len(head) + len(data)

    def read(self, key: str) -> bytes | None:
        with self._guard:
            if (waiting := self._unwritten.get(key)) is not None:
                return waiting
        try:
            with self._path(key).open("rb") as file:
                head = _read_head(file)
                data = file.read()
            os.utime(self._path(key))
        except (OSError, ValueError, KeyError, cbor2.CBORError) as error:
            log.warning("a stored prefix cannot be read: %s", error)
            return None
        if _sum(data) != head["sum"]:
            log.warning("a stored prefix is damaged: %s", self._path(key))
            return None
        return data

    def drop(self, key: str) -> None:
        with self._guard:
            self._unwritten.pop(key, None)
        self._path(key).unlink(missing_ok=True)

    def headers(self) -> Iterator[Header]:
        found: list[tuple[int, Header]] = []
        for path in self._folder.glob(f"*{SUFFIX}"):
            try:
                with path.open("rb") as file:
                    head = _read_head(file)
                facts = path.stat()
                ids = np.frombuffer(head["ids"], "<i4").astype(np.int32)
                header = Header(path.stem, str(head["parent"]), int(head["start"]), ids, facts.st_size, 0)
                found.append((facts.st_mtime_ns, header))
            except (OSError, ValueError, KeyError, TypeError, cbor2.CBORError) as error:
                log.warning("a stored prefix is dropped: %s: %s", path, error)
                path.unlink(missing_ok=True)
        ranked = enumerate(sorted(found, key=lambda one: one[0]), start=1)
        headers = [replace(header, used=used) for used, (_, header) in ranked]
        yield from sorted(headers, key=lambda header: header.start)

    def close(self) -> None:
        self._waiting.put(None)
        self._writer.join(FLUSH_SECONDS)
        self._lock.release()

    def _write_all(self) -> None:
        while (item := self._waiting.get()) is not None:
            key, head = item
            with self._guard:
                data = self._unwritten.get(key)
            if data is not None:
                self._write_file(key, head, data)
                with self._guard:
                    self._unwritten.pop(key, None)

    def _write_file(self, key: str, head: bytes, data: bytes) -> None:
        draft = self._folder / f"{key}.draft"
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(head)
                file.write(data)
            with self._guard:
                if key in self._unwritten:  # not dropped meanwhile
                    draft.replace(self._path(key))
        except OSError as error:
            log.warning("a prefix cannot be kept on disk: %s", error)
        finally:
            draft.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{SUFFIX}"


def identity(*facts: object) -> str:
    """A folder's name from what its rows depend on: the model file's hash, the engine's build, how it is used."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def _read_head(file: BinaryIO) -> dict[str, Any]:
    """Raises ValueError for a file of another kind, or one that was cut off."""
    start = file.read(len(MAGIC) + LENGTH.size)
    if len(start) < len(MAGIC) + LENGTH.size or not start.startswith(MAGIC):
        raise ValueError("it is no file of rows")
    (length,) = LENGTH.unpack(start[len(MAGIC) :])
    if length > MAX_HEADER:
        raise ValueError(f"its header claims {length} bytes")
    head = cbor2.loads(file.read(length))
    if not isinstance(head, dict):
        raise ValueError("its header is no map")
    return head


def _sum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _sweep(root: Path, mine: Path) -> None:
    """Remove the folders that nobody has opened for long."""
    end = time.time() - UNUSED_SECONDS
    for folder in root.iterdir():
        if folder == mine or not folder.is_dir() or not (folder / "lock").exists() or folder.stat().st_mtime > end:
            continue
        for path in (*folder.glob(f"*{SUFFIX}"), *folder.glob("*.draft"), folder / "lock"):
            path.unlink(missing_ok=True)
        folder.rmdir()
