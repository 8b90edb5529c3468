"""The snapshot a request starts from, and what is told of the repository with it. Blocking."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aerix_server.protocol.events import GitInfo, Snapshot
from aerix_server.session.worktree import Repository, find_repository, private_index, take_tree
from aerix_server.tools.git import GitFailed, git

NO_REPOSITORY = "not a git repository: what a request changed is not known here"


@dataclass(frozen=True)
class Taken:
    """`repository` is None outside one, and where git could not serve (then the snapshot's notice says why)."""

    snapshot: Snapshot
    git: GitInfo | None
    repository: Repository | None


def take_snapshot(cwd: Path, store: Path) -> Taken:
    """Never raises: without git the request goes on, and its diff says what is missing."""
    try:
        repository = find_repository(cwd, store)
        if repository is None:
            return Taken(Snapshot(kind="none", notice=NO_REPOSITORY), None, None)
        return _take(repository)
    except (GitFailed, OSError) as error:
        return Taken(
            Snapshot(kind="none", notice=f"no snapshot could be taken, so there is no diff: {error}"), None, None
        )


def _take(repository: Repository) -> Taken:
    with private_index(repository) as index:
        tree = take_tree(repository, index)
    head = _ask(repository, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    head_tree = _ask(repository, "rev-parse", "--verify", "--quiet", "HEAD^{tree}") if head else None
    branch = _ask(repository, "symbolic-ref", "--quiet", "--short", "HEAD")
    notice = "; ".join(tree.notices) or None
    empty = tree.id == empty_tree(repository)
    if head and head_tree == tree.id:
        snapshot = Snapshot(kind="commit", ref=head, notice=notice)
    else:
        snapshot = Snapshot(kind="empty" if empty else "tree", ref=tree.id, notice=notice)
    dirty = tree.id != head_tree if head else not empty
    return Taken(snapshot, GitInfo(head=head, branch=branch, dirty=dirty), repository)


def empty_tree(repository: Repository) -> str:
    """The id of the tree that holds nothing, in this repository's kind of ids."""
    return git(["hash-object", "-t", "tree", "--stdin"], repository.top).decode().strip()


def _ask(repository: Repository, *arguments: str) -> str | None:
    told = repository.run(arguments, accept=frozenset({0, 1, 128}))
    return told.decode("utf-8", "replace").strip() or None
