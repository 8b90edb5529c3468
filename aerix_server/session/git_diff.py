"""What git tells of a request: the working tree against the snapshot it started from. Blocking."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aerix_server.protocol.events import Snapshot
from aerix_server.session import compare
from aerix_server.session.compare import NOTHING, TREES, Compared, compare_trees
from aerix_server.session.patch import some_names
from aerix_server.session.refusals import take
from aerix_server.session.repository import Index, Repository, find_repository, private_index
from aerix_server.session.snapshot import NO_REPOSITORY
from aerix_server.session.worktree import is_file, list_tree, on_disk, take_tree, without_paths, write_tree
from aerix_server.tools.git import GitFailed


@dataclass(frozen=True)
class GitPart:
    """`top` is where relative names begin: of the repository, or the working directory.

    `new` are files that git does not know and that came since. `covers` are the paths that were compared; None where
    none were, and then a notice says why.
    """

    top: Path
    compared: Compared = NOTHING
    new: tuple[bytes, ...] = ()
    covers: frozenset[bytes] | None = None
    notices: tuple[str, ...] = ()


def git_part(cwd: Path, store: Path, snapshot: Snapshot, asked: bool) -> GitPart:
    """`asked` tells whether anybody wants to know what is covered. Never raises."""
    top = Path(os.path.realpath(cwd))
    if snapshot.ref is None:
        return GitPart(top, notices=(snapshot.notice or NO_REPOSITORY,))
    try:
        repository = find_repository(cwd, store)
        if repository is None:
            return GitPart(top, notices=("the repository is gone: only files changed by edit and write are compared",))
        return _compare(repository, snapshot, snapshot.ref, asked)
    except (GitFailed, OSError) as error:
        missing = f"no diff could be made, so only files changed by edit and write are compared: {error}"
        return GitPart(top, notices=_without_doubles([snapshot.notice, missing]))


def _compare(repository: Repository, snapshot: Snapshot, base: str, asked: bool) -> GitPart:
    with private_index(repository) as index:
        tree = take_tree(repository, index, keep_of=base)
        inner = _inner(repository, index, tree.nested)
        whole, new = tree.id, []
        differing = _differing(repository, base, whole)
        # A request may have had files ignored that are still on disk.
        if there := [path for path, kind in differing.items() if kind == b"D" and is_file(on_disk(repository, path))]:
            take(repository, index.path, there)
            whole = write_tree(repository, index.path)
        if added := [path for path, kind in differing.items() if kind == b"A"]:
            known = index.names()
            new = [path for path in added if path not in known]
        shown = without_paths(repository, index.path, new) if new else whole
    return GitPart(
        Path(os.path.realpath(repository.top)),
        compare_trees(repository.run, base, shown, compare.UNIFIED_BYTES) if differing else NOTHING,
        tuple(new),
        _names(repository, base, whole) - tree.left_out if asked else frozenset(),
        _without_doubles([snapshot.notice, *tree.notices, inner]),
    )


def _differing(repository: Repository, base: str, tree: str) -> dict[bytes, bytes]:
    """The paths that differ, each with a letter: `A` for added, `D` for deleted, another for changed."""
    told = repository.run([*TREES, "--no-renames", "--name-status", "-z", base, tree, "--"])
    fields = [field for field in told.split(b"\0") if field]
    return dict(zip(fields[1::2], fields[::2], strict=True))


def _names(repository: Repository, *trees: str) -> frozenset[bytes]:
    return frozenset(entry.partition(b"\t")[2] for tree in trees for entry in list_tree(repository, tree))


def _inner(repository: Repository, index: Index, nested: Iterable[bytes]) -> str | None:
    """What is not seen: files of repositories inside this one, which git compares by their commit or not at all."""
    unseen = list(nested)
    if submodules := index.submodules():
        arguments = ["diff-files", "--name-only", "--ignore-submodules=none", "-z", "--", *map(os.fsdecode, submodules)]
        unseen += [path for path in repository.run(arguments, index.path).split(b"\0") if path]
    if not unseen:
        return None
    return (
        f"of files in repositories inside this one ({some_names(map(os.fsdecode, unseen))}), only those changed by "
        "edit and write are compared"
    )


def _without_doubles(notices: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(notice for notice in notices if notice))
