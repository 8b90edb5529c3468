"""The working tree of a repository as a git tree object, made without touching the repository.

The index is a private copy, and new objects go to a private folder that borrows the repository's. So it is the same for
a repository without commits, one in the middle of a merge, and files git does not know yet.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aerix_server.session.folders import private_folder
from aerix_server.tools.git import OUTPUT_BYTES, GitFailed, git

UNTRACKED_FILE_BYTES = 8 * 1024 * 1024
UNTRACKED_TOTAL_BYTES = 256 * 1024 * 1024
UNTRACKED_FILES = 20_000
_NO_WORK_TREE = ("not a git repository", "must be run in a work tree")


@dataclass(frozen=True)
class Repository:
    """`top` is the working tree; `index` and `objects` are git's own, never written; `store` holds our objects."""

    top: Path
    index: Path
    objects: Path
    store: Path

    def run(
        self,
        arguments: Sequence[str],
        index: Path | None = None,
        stdin: bytes = b"",
        *,
        accept: frozenset[int] = frozenset({0}),
        output_bytes: int = OUTPUT_BYTES,
    ) -> bytes:
        """git in the working tree with our objects, and with a private index where one is given."""
        extra = {
            "GIT_OBJECT_DIRECTORY": str(self.store),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(str(self.objects)),
        }
        if index is not None:
            extra["GIT_INDEX_FILE"] = str(index)
        return git(arguments, self.top, extra=extra, stdin=stdin, accept=accept, output_bytes=output_bytes)


@dataclass(frozen=True)
class Tree:
    """`left_out` are paths of the working tree, as git names them, that were too large or too many to keep."""

    id: str
    left_out: tuple[bytes, ...]
    notices: tuple[str, ...]


def find_repository(cwd: Path, store: Path) -> Repository | None:
    """The repository `cwd` lies in, or None. `store` is made. Raises GitFailed when git is missing or cannot say."""
    try:
        told = git(["rev-parse", "--show-toplevel", "--git-path", "index", "--git-path", "objects"], cwd)
    except GitFailed as error:
        if any(reason in str(error) for reason in _NO_WORK_TREE):
            return None
        raise
    top, index, objects = told.removesuffix(b"\n").rsplit(b"\n", 2)
    try:
        private_folder(store)
    except OSError as error:
        raise GitFailed(f"the folder {store} cannot be made: {error.strerror}") from error
    return Repository(Path(os.fsdecode(top)), _path(cwd, index), _path(cwd, objects), store)


@contextmanager
def private_index(repository: Repository) -> Iterator[Path]:
    """A copy of the index to change at will. Its time is kept: git takes files newer than it for possibly changed."""
    with tempfile.TemporaryDirectory(prefix="aerix-index-") as folder:
        copy = Path(folder) / "index"
        try:
            shutil.copy2(repository.index, copy)
        except FileNotFoundError:
            pass  # Nothing was ever added.
        except OSError as error:
            raise GitFailed(f"the index {repository.index} cannot be read: {error.strerror}") from error
        yield copy


def take_tree(repository: Repository, index: Path, keep_of: str | None = None) -> Tree:
    """Write the whole working tree, ignored files aside, into the private index and to a tree object.

    What is left out stands as it does in the tree `keep_of`, so that a comparison with that does not call it deleted.
    """
    notices: list[str] = []
    if repository.run(["ls-files", "--unmerged", "-z"], index):
        notices.append("a merge or rebase is in progress: unmerged files are compared as they are on disk")
    unreadable = _add_known(repository, index)
    chosen, left_out = _choose(repository, _untracked(repository, index))
    if chosen:
        _add_untracked(repository, index, chosen)
    if left_out and keep_of:
        _restore(repository, index, left_out, keep_of)
    notices += _told("could not be read and count as unchanged", unreadable)
    notices += _told(
        f"untracked and over {UNTRACKED_FILE_BYTES >> 20} MiB, or beyond {UNTRACKED_FILES} files or "
        f"{UNTRACKED_TOTAL_BYTES >> 20} MiB in all, and are not compared",
        left_out,
    )
    return Tree(write_tree(repository, index), tuple(left_out), tuple(notices))


def write_tree(repository: Repository, index: Path) -> str:
    return repository.run(["write-tree"], index).decode().strip()


def list_tree(repository: Repository, tree: str) -> list[bytes]:
    """Every file of a tree as `mode type id<TAB>path`."""
    told = repository.run(["ls-tree", "-r", "-z", "--full-tree", tree])
    return [entry for entry in told.split(b"\0") if entry]


def _restore(repository: Repository, index: Path, paths: Sequence[bytes], tree: str) -> None:
    wanted = set(paths)
    entries = [entry for entry in list_tree(repository, tree) if entry.partition(b"\t")[2] in wanted]
    if entries:
        stdin = b"".join(entry + b"\0" for entry in entries)
        repository.run(["update-index", "-z", "--index-info"], index, stdin)


def _add_known(repository: Repository, index: Path) -> list[bytes]:
    """Bring every file of the index up to date; gives those that cannot be read."""
    try:
        repository.run(["add", "--update"], index)
        return []
    except GitFailed as error:
        if error.status is None:
            raise
    repository.run(["add", "--update", "--ignore-errors"], index, accept=frozenset({0, 1}))
    return [path for path in repository.run(["diff-files", "--name-only", "-z"], index).split(b"\0") if path]


def _untracked(repository: Repository, index: Path) -> list[bytes]:
    listed = repository.run(["ls-files", "--others", "--exclude-standard", "-z"], index)
    # A name that ends with a slash is a repository of its own.
    return [path for path in listed.split(b"\0") if path and not path.endswith(b"/")]


def _choose(repository: Repository, paths: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The untracked files to keep, and those to leave out. What cannot be read or is gone again is neither."""
    chosen: list[bytes] = []
    left_out: list[bytes] = []
    total = 0
    for path in paths:
        size = _size(os.path.join(os.fsencode(repository.top), path))  # noqa: PTH118 - names are bytes
        if size is None:
            continue
        if size > UNTRACKED_FILE_BYTES or total + size > UNTRACKED_TOTAL_BYTES or len(chosen) >= UNTRACKED_FILES:
            left_out.append(path)
        else:
            chosen.append(path)
            total += size
    return chosen, left_out


def _size(path: bytes) -> int | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) and os.access(path, os.R_OK) else None


def _add_untracked(repository: Repository, index: Path, paths: Sequence[bytes]) -> None:
    """A file may go while we look: then what is still there is added."""
    arguments = ["update-index", "--add", "--replace", "-z", "--stdin"]
    try:
        repository.run(arguments, index, b"".join(path + b"\0" for path in paths))
    except GitFailed as error:
        still, _ = _choose(repository, paths)
        if error.status is None or len(still) == len(paths):
            raise
        repository.run(arguments, index, b"".join(path + b"\0" for path in still))


def _told(what: str, paths: Sequence[bytes]) -> list[str]:
    if not paths:
        return []
    names = ", ".join(os.fsdecode(path).encode("utf-8", "backslashreplace").decode() for path in paths[:3])
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return [f"{len(paths)} files {what}: {names}{more}"]


def _path(cwd: Path, told: bytes) -> Path:
    return (cwd / os.fsdecode(told)).absolute()


def _quoted(path: str) -> str:
    """As an item of a list that colons separate."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if ":" in path or path.startswith('"') else path
