"""A repository as we may use it: found, read, and never written. Our own index and objects lie elsewhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aerix_server.session.folders import private_folder
from aerix_server.tools.git import OUTPUT_BYTES, GitFailed, git

_NO_REPOSITORY = "not a git repository"
_NO_WORK_TREE = "must be run in a work tree"
_OF_ANOTHER = "dubious ownership"


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

    def ask(self, *arguments: str) -> str | None:
        """The one line that git prints, or None when it has nothing to say or the repository is too broken for it."""
        told = self.run(arguments, accept=frozenset({0, 1, 128}))
        return told.decode("utf-8", "replace").strip() or None


@dataclass(frozen=True)
class Listed:
    """A line of `ls-files -v -s`. `tag` is `S` for skip-worktree, `M` for unmerged, else `H`; in lower case it is
    assume-unchanged too."""

    tag: bytes
    mode: bytes
    path: bytes


@dataclass(frozen=True)
class Index:
    """A private copy of the index. `listed` is what it held at first."""

    path: Path
    listed: tuple[Listed, ...]
    notice: str | None = None

    def names(self) -> set[bytes]:
        """What git knows."""
        return {entry.path for entry in self.listed}

    def tagged(self, tags: bytes) -> list[bytes]:
        """The paths with one of the tags."""
        return list(dict.fromkeys(entry.path for entry in self.listed if entry.tag in tags))

    def submodules(self) -> list[bytes]:
        return [entry.path for entry in self.listed if entry.mode == b"160000"]


def find_repository(cwd: Path, store: Path) -> Repository | None:
    """The repository whose working tree `cwd` lies in, or None. `store` is made.

    Raises GitFailed when git is missing, cannot say, or does not want to, with what can be done.
    """
    try:
        top, index, objects = _places(cwd)
    except GitFailed as error:
        told = str(error)
        if _OF_ANOTHER in told:
            hint = "`git config --global --add safe.directory <folder>` trusts it"
            raise GitFailed(f"{told} ({hint})", error.status) from error
        broken = _git_entry(cwd) if _NO_REPOSITORY in told else None
        if broken is not None:
            raise GitFailed(f"git takes {broken} for no repository: {told}", error.status) from error
        if _NO_REPOSITORY in told or _NO_WORK_TREE in told:
            return None
        raise
    try:
        private_folder(store)
    except OSError as error:
        raise GitFailed(f"the folder {store} cannot be made: {error.strerror}") from error
    return Repository(Path(os.fsdecode(top)), _path(cwd, index), _path(cwd, objects), store)


@contextmanager
def private_index(repository: Repository) -> Iterator[Index]:
    """A copy of the index to change at will. Its time is kept: git takes files newer than it for possibly changed.

    Where there is none, or one that cannot be read, it holds what HEAD does, or nothing. Raises GitFailed.
    """
    with tempfile.TemporaryDirectory(prefix="aerix-index-") as folder:
        copy = Path(folder) / "index"
        notice = None
        try:
            shutil.copy2(repository.index, copy)
            listed = _listed(repository, copy)
        except FileNotFoundError:
            listed = _of_head(repository, copy)
        except (OSError, GitFailed) as error:
            if isinstance(error, GitFailed) and error.status is None:
                raise
            why = error.strerror if isinstance(error, OSError) else error
            notice = f"git's index cannot be read ({why}), so files it held count as those of the last commit"
            copy.unlink(missing_ok=True)
            listed = _of_head(repository, copy)
        yield Index(copy, listed, notice)


def _of_head(repository: Repository, index: Path) -> tuple[Listed, ...]:
    if repository.ask("rev-parse", "--verify", "--quiet", "HEAD^{tree}") is None:
        return ()  # Nothing was ever added.
    repository.run(["read-tree", "HEAD"], index)
    return _listed(repository, index)


def _listed(repository: Repository, index: Path) -> tuple[Listed, ...]:
    entries = repository.run(["ls-files", "-v", "-s", "-z"], index).split(b"\0")
    return tuple(Listed(entry[:1], entry[2:8], entry.partition(b"\t")[2]) for entry in entries if entry)


def _places(cwd: Path) -> tuple[bytes, bytes, bytes]:
    wanted = (["--show-toplevel"], ["--git-path", "index"], ["--git-path", "objects"])
    told = git(["rev-parse", *(word for words in wanted for word in words)], cwd)
    if told.count(b"\n") == len(wanted):
        top, index, objects, _ = told.split(b"\n")
    else:  # A name with a line end in it: one question each.
        top, index, objects = (git(["rev-parse", *words], cwd).removesuffix(b"\n") for words in wanted)
    return top, index, objects


def _git_entry(cwd: Path) -> Path | None:
    """A `.git` in the folder or above it, which git was to find."""
    return next((entry for folder in (cwd, *cwd.parents) if os.path.lexists(entry := folder / ".git")), None)


def _path(cwd: Path, told: bytes) -> Path:
    return (cwd / os.fsdecode(told)).absolute()


def _quoted(path: str) -> str:
    """As an item of a list that colons separate."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if ":" in path or path.startswith('"') else path
