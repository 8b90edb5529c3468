"""What a request changed: the working tree against the snapshot it started from. Blocking.

`files` and `unified` hold what git knows, and files that were untracked when the snapshot was taken: their text of then
is in it, so only the change since is shown. A file that is new and that git does not know is named in `untracked`, its
text nowhere; so is a touched file that is ignored, too large for the snapshot, or outside the repository. Paths are
relative to the repository's top, as git prints them; those outside it, and all where there is none, are absolute.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from aerix_server.protocol.events import DiffStat, Snapshot
from aerix_server.protocol.messages import DiffResult, FileDiff
from aerix_server.session.patch import Changed, display, file_diff, parse_changed, split_patch
from aerix_server.session.snapshot import NO_REPOSITORY
from aerix_server.session.worktree import (
    Repository,
    find_repository,
    list_tree,
    private_index,
    take_tree,
    write_tree,
)
from aerix_server.tools.git import GitFailed

UNIFIED_BYTES = 8 * 1024 * 1024
UNTRACKED_NAMED = 1000
_DIFF = ("diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none")
_PATCH = ("-p", "-U3", "--full-index", "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short")


def diff_since(cwd: Path, store: Path, snapshot: Snapshot, touched: Iterable[str]) -> DiffResult:
    """`touched` are the paths the tools of the request wrote, absolute or relative to `cwd`. Never raises: a notice
    says what is missing."""
    paths = [Path(os.path.normpath(cwd / path)) for path in touched]
    try:
        repository = find_repository(cwd, store)
        if repository is None or snapshot.ref is None:
            return _without(paths, snapshot.notice or NO_REPOSITORY)
        return _Comparison(repository, snapshot, paths).result()
    except (GitFailed, OSError) as error:
        return _without(paths, f"the diff is not known: {error}")


def stat_of(diff: DiffResult) -> DiffStat:
    """As `git diff --numstat` counts."""
    return DiffStat(
        added=sum(file.added for file in diff.files),
        removed=sum(file.removed for file in diff.files),
        files=len(diff.files),
    )


def _without(touched: Sequence[Path], notice: str) -> DiffResult:
    existing = sorted({str(path) for path in touched if os.path.lexists(path)})
    return DiffResult(files=[], untracked=existing, unified="", notice=notice)


class _Comparison:
    """One comparison of the working tree with a snapshot."""

    def __init__(self, repository: Repository, snapshot: Snapshot, touched: Sequence[Path]) -> None:
        assert snapshot.ref is not None
        self._repository = repository
        self._base = snapshot.ref
        self._touched = touched
        self._notices = [snapshot.notice] if snapshot.notice else []

    def result(self) -> DiffResult:
        with private_index(self._repository) as index:
            tree = take_tree(self._repository, index, keep_of=self._base)
            unknown = self._unknown(self._new_paths(tree.id))
            shown = self._without_paths(index, unknown) if unknown else tree.id
        self._notices += [notice for notice in tree.notices if notice not in self._notices]
        files, unified = self._compare(shown)
        untracked = self._named([*map(display, unknown), *self._touched_unseen(tree.id)])
        notice = "; ".join(dict.fromkeys(self._notices)) or None
        return DiffResult(files=files, untracked=untracked, unified=unified, notice=notice)

    def _new_paths(self, tree: str) -> list[bytes]:
        told = self._repository.run(
            [*_DIFF, "--no-renames", "--diff-filter=A", "--name-only", "-z", self._base, tree, "--"]
        )
        return [path for path in told.split(b"\0") if path]

    def _unknown(self, paths: Sequence[bytes]) -> list[bytes]:
        """Those of the paths that are not in the user's own index."""
        if not paths:
            return []
        known = set(self._repository.run(["ls-files", "--cached", "-z"]).split(b"\0"))
        return [path for path in paths if path not in known]

    def _without_paths(self, index: Path, paths: Sequence[bytes]) -> str:
        stdin = b"".join(path + b"\0" for path in paths)
        self._repository.run(["update-index", "--force-remove", "-z", "--stdin"], index, stdin)
        return write_tree(self._repository, index)

    def _compare(self, tree: str) -> tuple[list[FileDiff], str]:
        changed = parse_changed(self._repository.run([*_DIFF, "-z", "--raw", "--numstat", self._base, tree, "--"]))
        if not changed:
            return [], ""
        arguments = [*_DIFF, *_PATCH, self._base, tree, "--"]
        patch = self._repository.run(arguments, output_bytes=UNIFIED_BYTES + 1)
        sections = split_patch(patch)
        if len(patch) > UNIFIED_BYTES:
            sections = sections[:-1]
        return self._joined(changed, sections)

    def _joined(self, changed: Sequence[Changed], sections: list[bytes]) -> tuple[list[FileDiff], str]:
        """Each file with its sections; past the limit of the text, files have no hunks and a notice says so."""
        files: list[FileDiff] = []
        shown: list[bytes] = []
        position = missing = 0
        for item in changed:
            own = sections[position : position + item.sections]
            position += item.sections
            whole = len(own) == item.sections
            files.append(file_diff(item, own if whole else []))
            shown += own if whole else []
            missing += not whole
        if missing:
            self._notices.append(
                f"the diff is over {UNIFIED_BYTES >> 20} MiB: the text of {missing} of {len(files)} files is left out"
            )
        return files, b"".join(shown).decode("utf-8", "replace")

    def _touched_unseen(self, tree: str) -> list[str]:
        """Touched files that exist and are in neither tree: ignored, left out, in another repository, or outside."""
        inside: dict[bytes, str] = {}
        unseen: list[str] = []
        for path in self._touched:
            if not os.path.lexists(path):
                continue
            relative = _below(path, self._repository.top)
            if relative is None:
                unseen.append(str(path))
            else:
                inside[os.fsencode(relative)] = relative
        if inside:
            for root in (self._base, tree):
                for entry in list_tree(self._repository, root):
                    inside.pop(entry.partition(b"\t")[2], None)
        return [*inside.values(), *unseen]

    def _named(self, paths: Iterable[str]) -> list[str]:
        ordered = sorted(set(paths))
        if len(ordered) > UNTRACKED_NAMED:
            self._notices.append(f"{len(ordered)} untracked files changed, of which {UNTRACKED_NAMED} are named")
        return ordered[:UNTRACKED_NAMED]


def _below(path: Path, top: Path) -> str | None:
    """The path from the top, its folder's links resolved but not the file's own; None when it lies outside."""
    whole = Path(os.path.realpath(path.parent)) / path.name
    try:
        return str(whole.relative_to(os.path.realpath(top)))
    except ValueError:
        return None
