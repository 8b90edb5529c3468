"""The file set that glob, grep and repo_map share.

Inside a git repository it is what git tracks and what is new and not ignored; elsewhere a bounded walk. A symbolic
link to a directory is never followed, so each real directory is seen once and every scan ends.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aerix_server.config.bounds import WALK_FILES
from aerix_server.tools.base import ToolError
from aerix_server.tools.git import GitFailed, GitLate, GitMissing, git
from aerix_server.tools.names import escape_name

_NAME_SHOWN = 200
SKIPPED_DIRECTORIES = frozenset({".git", "target", "node_modules"})

Stop = Callable[[], bool]
"""True when the work is to end."""


@dataclass(frozen=True)
class FileEntry:
    """`name` is relative to the set's root, as os.fsdecode gives it; `size` in bytes. A link's size is its target's."""

    name: str
    size: int
    link: bool = False


@dataclass(frozen=True)
class FileSet:
    """Plain files under `root`, sorted by name. `notes` tell what the set may lack."""

    root: Path
    files: tuple[FileEntry, ...]
    in_git: bool
    notes: tuple[str, ...] = ()


def list_files(root: Path, stop: Stop) -> FileSet:
    """The file set under the directory `root`. Raises ToolError when it was stopped, `root` is gone or git is slow."""
    if not root.is_dir():
        raise ToolError(f"the directory {escape_name(os.fspath(root))} does not exist")
    try:
        names = set(_git_names(root, ["--cached", "--others", "--exclude-standard"], stop))
    except GitMissing:
        note = "git is not installed, so ignored files are in this" if _has_repository(root) else None
        return _walked(root, stop, note)
    except GitLate as error:
        raise ToolError(str(error)) from error
    except GitFailed as error:
        outside = "not a git repository" in str(error) or "must be run in a work tree" in str(error)
        note = None if outside else f"git could not list the files ({_first_line(str(error))}), so ignored ones are in"
        return _walked(root, stop, note)
    return FileSet(root, tuple(_entries(root, sorted(names), stop)), in_git=True)


def list_ignored(root: Path, stop: Stop) -> list[str]:
    """Names under `root` that git ignores. Empty outside a repository. Raises ToolError when it was stopped."""
    try:
        return sorted(_git_names(root, ["--others", "--ignored", "--exclude-standard"], stop))
    except GitFailed:
        return []


def ignored_entries(root: Path) -> list[str]:
    """Files and directories (with `/`) under `root` that git ignores, none of what is inside such a directory."""
    try:
        raw = git(["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"], root)
    except GitFailed:
        return []
    return sorted(os.fsdecode(name) for name in raw.split(b"\0") if name)


def _git_names(root: Path, which: list[str], stop: Stop, parents: frozenset[str] = frozenset()) -> Iterator[str]:
    """Names relative to `root`; a repository inside it (submodule or not) is listed by its own rules."""
    _check(stop)
    own = os.path.realpath(root)
    for raw in git(["ls-files", "-z", *which], root).split(b"\0"):
        name = os.fsdecode(raw).rstrip("/")
        path = root / name
        if not name:
            continue
        if path.is_dir() and not path.is_symlink():
            if os.path.realpath(path) not in parents | {own} and (path / ".git").exists():
                yield from (f"{name}/{inner}" for inner in _git_names(path, which, stop, parents | {own}))
        else:
            yield name


def _entries(root: Path, names: list[str], stop: Stop) -> Iterator[FileEntry]:
    for count, name in enumerate(names):
        if count % 1000 == 0:
            _check(stop)
        entry = _entry(root, name)
        if entry is not None:
            yield entry


def _entry(root: Path, name: str) -> FileEntry | None:
    """None for what is gone, and for what is no plain file or link to one."""
    path = os.path.join(root, name)  # noqa: PTH118 (once for each file of a large tree)
    try:
        seen = os.lstat(path)
        link = stat.S_ISLNK(seen.st_mode)
        if link:
            seen = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return FileEntry(name, seen.st_size, link) if stat.S_ISREG(seen.st_mode) else None


def _walked(root: Path, stop: Stop, note: str | None) -> FileSet:
    entries: list[FileEntry] = []
    notes = [note] if note else []
    unread: list[str] = []
    for name in walk(root, stop, unread):
        if len(entries) >= WALK_FILES:
            notes.append(f"only the first {WALK_FILES} files were looked at")
            break
        entry = _entry(root, name)
        if entry is not None:
            entries.append(entry)
    if unread:
        first = escape_name(unread[0] or ".")
        first = first if len(first) <= _NAME_SHOWN else f"{first[:_NAME_SHOWN]}…"
        count = "1 directory" if len(unread) == 1 else f"{len(unread)} directories"
        notes.append(f"{count} could not be read, {first} first")
    return FileSet(root, tuple(sorted(entries, key=lambda entry: entry.name)), in_git=False, notes=tuple(notes))


def walk(root: Path, stop: Stop, unread: list[str]) -> Iterator[str]:
    """Names of everything under `root` that is no directory, in a fixed order, one directory at a time.

    Directories that cannot be read are added to `unread`.
    """
    pending = [""]
    while pending:
        _check(stop)
        prefix = pending.pop()
        try:
            found = sorted(os.scandir(root / prefix), key=lambda entry: entry.name)
        except OSError:
            unread.append(prefix)
            continue
        inner: list[str] = []
        for entry in found:
            if not entry.is_dir(follow_symlinks=False):
                yield prefix + entry.name
            elif entry.name not in SKIPPED_DIRECTORIES:
                inner.append(f"{prefix}{entry.name}/")
        pending.extend(reversed(inner))


def files_text(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"


def _check(stop: Stop) -> None:
    if stop():
        raise ToolError("cancelled")


def _has_repository(root: Path) -> bool:
    return any((directory / ".git").exists() for directory in (root, *root.parents))


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
