"""Files as they were before a request first changed them, kept where git keeps nothing.

That is outside a repository, and in one for files it ignores or that lie outside it. Copies lie in a private folder of
the request, beside a list of one JSON object a line; what revert gives back comes from here too.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aerix_server.config.bounds import SHADOW_FILE_BYTES, SHADOW_FILES, SHADOW_TOTAL_BYTES
from aerix_server.session.folders import private_folder

_log = logging.getLogger(__name__)

Kind = Literal["file", "link", "absent", "other", "unknown"]
_KINDS: tuple[Kind, ...] = ("file", "link", "absent", "other", "unknown")
_LIST = "kept.jsonl"


@dataclass(frozen=True)
class Kept:
    """A path before the request first changed it. `mode` are the permission bits of a file; `copy` holds its bytes, or
    a link's target. `other` is a folder or a device, `unknown` what could not be kept, and `reason` says why."""

    path: Path
    kind: Kind
    mode: int = 0
    copy: Path | None = None
    reason: str = ""


def shadow_folder(store: Path, session: str, request: str) -> Path:
    """Where a request's copies lie, beside the `store` of the snapshots' objects."""
    return store.parent / "shadow" / session / request


class Shadow:
    """The copies of one request. `keep` may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._kept: dict[Path, Kept] = {}
        self._bytes = 0

    def keep(self, path: Path) -> None:
        """To be called before `path` (absolute, links resolved) is changed; the first call for a path counts. Never
        raises: what could not be kept is told with the diff. Blocking."""
        # Who writes the same file next waits here until its bytes are safe.
        with self._lock:
            if path in self._kept:
                return
            try:
                kept = self._copy(path)
            except OSError as error:
                kept = Kept(path, "unknown", reason=error.strerror or str(error))
            self._kept[path] = kept
            try:
                self._note(kept)
            except OSError:
                _log.warning("the list of kept files in %s cannot be written", self._folder, exc_info=True)

    def kept(self) -> list[Kept]:
        """In the order in which the files were first changed."""
        with self._lock:
            return list(self._kept.values())

    def _copy(self, path: Path) -> Kept:
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return Kept(path, "absent")
        if stat.S_ISLNK(status.st_mode):
            copy = self._place()
            copy.write_bytes(os.fsencode(path.readlink()))
            return Kept(path, "link", copy=copy)
        if not stat.S_ISREG(status.st_mode):
            return Kept(path, "other")
        if refusal := self._refusal(status.st_size):
            return Kept(path, "unknown", reason=refusal)
        copy = self._place()
        shutil.copyfile(path, copy)
        self._bytes += copy.stat().st_size
        return Kept(path, "file", stat.S_IMODE(status.st_mode), copy)

    def _refusal(self, size: int) -> str:
        if size > SHADOW_FILE_BYTES:
            return f"it has over {SHADOW_FILE_BYTES >> 20} MiB"
        if self._bytes + size > SHADOW_TOTAL_BYTES:
            return f"the request changed files of over {SHADOW_TOTAL_BYTES >> 20} MiB in all"
        return f"the request changed over {SHADOW_FILES} files" if len(self._kept) >= SHADOW_FILES else ""

    def _place(self) -> Path:
        return private_folder(self._folder) / f"{len(self._kept) + 1}"

    def _note(self, kept: Kept) -> None:
        private_folder(self._folder)
        line = {
            "path": str(kept.path),
            "kind": kept.kind,
            "mode": kept.mode,
            "copy": kept.copy.name if kept.copy else None,
            "reason": kept.reason,
        }
        with (self._folder / _LIST).open("a", encoding="ascii") as file:
            file.write(json.dumps(line) + "\n")


def read_shadow(folder: Path) -> list[Kept]:
    """What a request, which may run elsewhere or have ended, kept; nothing where there is no list. Blocking."""
    try:
        lines = (folder / _LIST).read_bytes().split(b"\n")
    except OSError:
        return []
    return list(_parse(folder, lines))


def earliest(shadows: Sequence[Sequence[Kept]]) -> list[Kept]:
    """Of several requests, oldest first, each path as it was before the first that changed it."""
    found: dict[Path, Kept] = {}
    for kept in (kept for shadow in shadows for kept in shadow):
        found.setdefault(kept.path, kept)
    return list(found.values())


def _parse(folder: Path, lines: Sequence[bytes]) -> Iterator[Kept]:
    """A line that was cut short when the disk was full, or the machine stopped, is passed over."""
    for line in lines:
        try:
            value: Any = json.loads(line)
            kind, copy = value["kind"], value["copy"]
            if kind in _KINDS:
                where = folder / Path(copy).name if copy else None
                yield Kept(Path(value["path"]), kind, int(value["mode"]), where, str(value["reason"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
