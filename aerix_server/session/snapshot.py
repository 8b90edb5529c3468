"""The snapshot a request starts from, and what is told of the repository with it. Blocking."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aerix_server.protocol.events import GitInfo, Snapshot
from aerix_server.session.repository import Repository, find_repository, private_index
from aerix_server.session.worktree import take_tree
from aerix_server.tools.git import GitFailed, git

NO_REPOSITORY = "outside a git repository only files changed by edit and write are compared"


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
        notice = f"no snapshot could be taken, so only files changed by edit and write are compared: {error}"
        return Taken(Snapshot(kind="none", notice=notice), None, None)


def _take(repository: Repository) -> Taken:
    with private_index(repository) as index:
        tree = take_tree(repository, index)
    head = repository.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    head_tree = repository.ask("rev-parse", "--verify", "--quiet", "HEAD^{tree}") if head else None
    branch = repository.ask("symbolic-ref", "--quiet", "--short", "HEAD")
    notice = "; ".join(tree.notices) or None
    nothing = empty_tree(repository)
    if head and head_tree == tree.id:
        snapshot = Snapshot(kind="commit", ref=head, notice=notice)
    else:
        snapshot = Snapshot(kind="empty" if tree.id == nothing else "tree", ref=tree.id, notice=notice)
    dirty = tree.with_absent != (head_tree or nothing)
    return Taken(snapshot, GitInfo(head=head, branch=branch, dirty=dirty), repository)


def empty_tree(repository: Repository) -> str:
    """The id of the tree that holds nothing, in this repository's kind of ids."""
    return git(["hash-object", "-t", "tree", "--stdin"], repository.top).decode().strip()
