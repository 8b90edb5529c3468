"""The working tree of a repository as a git tree object, made without touching the repository.

The index is a private copy, and new objects go to a private folder that borrows the repository's. So it is the same for
a repository without commits, one in the middle of a merge, and files git does not know yet.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aerix_server.session.patch import some_names
from aerix_server.session.refusals import take
from aerix_server.session.repository import Index, Repository
from aerix_server.tools.git import GitFailed

UNTRACKED_FILE_BYTES = 8 * 1024 * 1024
UNTRACKED_TOTAL_BYTES = 256 * 1024 * 1024
UNTRACKED_FILES = 20_000


@dataclass(frozen=True)
class Tree:
    """`id` is what is on disk; `with_absent` the same with those files that a sparse checkout leaves out.

    `left_out` are paths, as git names them, that were too large or too many to keep, or that git would not take;
    `nested` are folders, ended by a slash, that are repositories of their own and that git does not know.
    """

    id: str
    with_absent: str
    left_out: frozenset[bytes]
    nested: tuple[bytes, ...]
    notices: tuple[str, ...]


def take_tree(repository: Repository, index: Index, keep_of: str | None = None) -> Tree:
    """Write the whole working tree, ignored files aside, into the private index and to a tree object.

    What is left out stands as it does in the tree `keep_of`, so that a comparison with that does not call it deleted.
    Raises GitFailed.
    """
    notices = [index.notice] if index.notice else []
    if index.tagged(b"Mm"):
        notices.append("a merge or rebase is in progress: unmerged files are compared as they are on disk")
    absent = _look_at_all(repository, index)
    refused = _add_known(repository, index, absent)
    untracked = _untracked(repository, index.path)
    nested = tuple(path for path in untracked if path.endswith(b"/"))
    chosen, too_much = _choose(repository, [path for path in untracked if not path.endswith(b"/")])
    refused |= take(repository, index.path, chosen)
    left_out = frozenset({*too_much, *refused})
    if left_out and keep_of:
        _restore(repository, index.path, left_out, keep_of)
    notices += _told("that git could not read, taken as unchanged", refused)
    notices += _told(
        f"untracked and over {UNTRACKED_FILE_BYTES >> 20} MiB, or beyond {UNTRACKED_FILES} files or "
        f"{UNTRACKED_TOTAL_BYTES >> 20} MiB in all, not compared",
        dict.fromkeys(too_much, ""),
    )
    with_absent = write_tree(repository, index.path)
    tree = without_paths(repository, index.path, absent) if absent else with_absent
    return Tree(tree, with_absent, left_out, nested, tuple(notices))


def write_tree(repository: Repository, index: Path) -> str:
    """An object that the repository lacks (a partial clone, a broken one) is named all the same."""
    return repository.run(["write-tree", "--missing-ok"], index).decode().strip()


def without_paths(repository: Repository, index: Path, paths: Sequence[bytes]) -> str:
    """Take the paths out of the private index; gives the tree of the rest."""
    repository.run(["update-index", "--force-remove", "-z", "--stdin"], index, _lines(paths))
    return write_tree(repository, index)


def list_tree(repository: Repository, tree: str) -> list[bytes]:
    """Every file of a tree as `mode type id<TAB>path`."""
    told = repository.run(["ls-tree", "-r", "-z", "--full-tree", tree])
    return [entry for entry in told.split(b"\0") if entry]


def _look_at_all(repository: Repository, index: Index) -> list[bytes]:
    """Let git look at files it was told not to look at; gives those that are not on disk."""
    if assumed := [entry.path for entry in index.listed if entry.tag.islower()]:
        repository.run(["update-index", "--no-assume-unchanged", "-z", "--stdin"], index.path, _lines(assumed))
    skipped = index.tagged(b"Ss")
    present = [name for name in skipped if os.path.lexists(on_disk(repository, name))]
    if present:
        repository.run(["update-index", "--no-skip-worktree", "-z", "--stdin"], index.path, _lines(present))
    there = set(present)
    return [name for name in skipped if name not in there]


def _restore(repository: Repository, index: Path, paths: frozenset[bytes], tree: str) -> None:
    entries = [entry for entry in list_tree(repository, tree) if entry.partition(b"\t")[2] in paths]
    if entries:
        repository.run(["update-index", "--replace", "-z", "--index-info"], index, _lines(entries))


def _add_known(repository: Repository, index: Index, absent: Sequence[bytes]) -> dict[bytes, str]:
    """Bring every file of the index up to date; gives those that git does not take, each with why."""
    update = ["add", "--update", "--sparse"]
    try:
        repository.run(update, index.path)
        return {}
    except GitFailed as error:
        if error.status is None:
            raise
        why = str(error)
    try:
        repository.run([*update, "--ignore-errors"], index.path, accept=frozenset({0, 1}))
        changed = repository.run(["diff-files", "--name-only", "--ignore-submodules=dirty", "-z"], index.path)
        return {path: why for path in changed.split(b"\0") if path}
    except GitFailed as error:
        if error.status is None:
            raise
    # An unreadable file is passed over, a filter that fails ends git: then the rest is to be found file by file.
    return take(repository, index.path, sorted(index.names() - set(absent)))


def _untracked(repository: Repository, index: Path) -> list[bytes]:
    listed = repository.run(["ls-files", "--others", "--exclude-standard", "-z"], index)
    return [path for path in listed.split(b"\0") if path]


def _choose(repository: Repository, paths: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The untracked files to keep, and those to leave out. What cannot be read or is gone again is neither."""
    chosen: list[bytes] = []
    left_out: list[bytes] = []
    total = 0
    for path in paths:
        size = _size(on_disk(repository, path))
        if size is None:
            continue
        if size > UNTRACKED_FILE_BYTES or total + size > UNTRACKED_TOTAL_BYTES or len(chosen) >= UNTRACKED_FILES:
            left_out.append(path)
        else:
            chosen.append(path)
            total += size
    return chosen, left_out


def is_file(path: bytes) -> bool:
    """A plain file or a link is there."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _size(path: bytes) -> int | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) and os.access(path, os.R_OK) else None


def on_disk(repository: Repository, path: bytes) -> bytes:
    """Where a path of git's is."""
    return os.path.join(os.fsencode(repository.top), path)  # noqa: PTH118 - names are bytes


def _lines(entries: Sequence[bytes]) -> bytes:
    return b"".join(entry + b"\0" for entry in entries)


def _told(what: str, paths: dict[bytes, str]) -> list[str]:
    if not paths:
        return []
    files = "1 file" if len(paths) == 1 else f"{len(paths)} files"
    why = next(iter(paths.values()))
    return [f"{files} {what}: {some_names(os.fsdecode(path) for path in paths)}{f' ({why})' if why else ''}"]
