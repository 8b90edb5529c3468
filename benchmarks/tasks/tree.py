"""What a folder holds, byte for byte, and what is another in a later picture of it."""

from __future__ import annotations

import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

JUNK: Final = frozenset({".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
"""Folders that running or reading code leaves behind."""
JUNK_ENDINGS: Final = (".pyc", ".pyo")
JUNK_BEGINNINGS: Final = (".aider",)
"""What an agent keeps for itself: no part of its work."""

Ending = Literal["CRLF", "LF", "mixed", "none"]


@dataclass(frozen=True)
class Entry:
    """A file or a link: its permission bits, and its bytes or where it points. `kind` is file, link or special."""

    kind: Literal["file", "link", "special"]
    mode: int
    data: bytes


Tree = Mapping[str, Entry]
"""Entries by path, with forward slashes, relative to the folder."""


def picture(folder: Path) -> dict[str, Entry]:
    """Everything in the folder but junk."""
    entries: dict[str, Entry] = {}
    waiting = [folder]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            if path.name in JUNK or path.name.endswith(JUNK_ENDINGS) or path.name.startswith(JUNK_BEGINNINGS):
                continue
            if path.is_dir() and not path.is_symlink():
                waiting.append(path)
            else:
                entries[path.relative_to(folder).as_posix()] = _entry(path)
    return entries


def changed(before: Tree, after: Tree) -> list[str]:
    """The paths that are new, gone or another, by name."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def damage(before: Tree, after: Tree, may_change: Collection[str]) -> str | None:
    """What was done that nobody asked for, as a sentence; None when there is nothing.

    A file that may change keeps its permissions and its line endings.
    """
    for path in changed(before, after):
        old, new = before.get(path), after.get(path)
        if path not in may_change:
            return _unasked(path, old, new)
        if old is None or new is None:
            continue
        if (old.kind, old.mode) != (new.kind, new.mode):
            return f"{path} is a {old.kind} of mode {old.mode:o} no more, but a {new.kind} of mode {new.mode:o}"
        if not _same_ending(endings(old.data), endings(new.data)):
            return f"{path} had {endings(old.data)} line endings and has {endings(new.data)} now"
    return None


def endings(data: bytes) -> Ending:
    """How the lines of a text end."""
    crlf = data.count(b"\r\n")
    bare = data.count(b"\n") + data.count(b"\r") - 2 * crlf
    if crlf and bare:
        return "mixed"
    if crlf:
        return "CRLF"
    return "LF" if bare else "none"


def _unasked(path: str, old: Entry | None, new: Entry | None) -> str:
    if old is None:
        return f"{path} was made, which nobody asked for"
    if new is None:
        return f"{path} was removed, which nobody asked for"
    if old.data == new.data and old.kind == new.kind:
        return f"the mode of {path} was changed from {old.mode:o} to {new.mode:o}, which nobody asked for"
    if old.data.replace(b"\r\n", b"\n") == new.data.replace(b"\r\n", b"\n"):
        return f"the line endings of {path} were changed, which nobody asked for"
    return f"{path} was changed, which nobody asked for"


def _same_ending(old: Ending, new: Ending) -> bool:
    return old == new or "none" in (old, new)


def _entry(path: Path) -> Entry:
    status = path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return Entry("link", mode, bytes(path.readlink()))
    if stat.S_ISREG(status.st_mode):
        return Entry("file", mode, path.read_bytes())
    return Entry("special", mode, b"")
