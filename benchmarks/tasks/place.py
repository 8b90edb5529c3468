"""Where the runs of a trial happen: the same paths every time, since paths are part of a prompt."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from benchmarks.tasks.errors import TrialFailed
from benchmarks.tasks.task import Task

_COMMIT: Final = {
    "GIT_AUTHOR_NAME": "Trial",
    "GIT_AUTHOR_EMAIL": "trial@example.org",
    "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "Trial",
    "GIT_COMMITTER_EMAIL": "trial@example.org",
    "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
}
_OTHERS: Final = ("AERIX_", "AIDER_", "CALDRIX_", "GIT_", "OPENAI_", "XDG_")
"""Beginnings of variables that would change an agent's behaviour."""


@dataclass(frozen=True)
class Place:
    """A folder of the trial's own."""

    root: Path

    @property
    def home(self) -> Path:
        """The home folder of the run at hand."""
        return self.root / "home"

    def repo(self, task: Task) -> Path:
        return self.root / "work" / task.name


@contextlib.contextmanager
def held(root: Path) -> Iterator[Place]:
    """The place, for one trial at a time, emptied on leaving. Raises TrialFailed when another trial is in it."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(root / "lock", timeout=0):
            yield Place(root)
            for name in ("home", "work", "pool", "llama-server"):
                _remove(root / name)
    except Timeout as error:
        raise TrialFailed(f"another trial runs in {root}; wait for it, or give --root another folder") from error
    except PermissionError as error:
        raise TrialFailed(f"{root} cannot be used: {error.strerror}; give --root another folder") from error


def lay(place: Place, task: Task) -> Path:
    """The task's repository, fresh and committed, and an empty home; gives the repository's path."""
    repo = place.repo(task)
    for path in (repo, place.home):
        _remove(path)
    repo.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(task.repo, repo, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("config", "data", "state", "cache"):
        (place.home / name).mkdir(parents=True)
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "Start"]):
        subprocess.run(["git", "-C", str(repo), *words], env={**environment(place), **_COMMIT}, check=True)
    return repo


def keep(place: Place, task: Task, target: Path) -> None:
    """Move the run's repository and home to `target`, which is replaced."""
    _remove(target)
    target.mkdir(parents=True)
    shutil.move(place.repo(task), target / "repo")
    shutil.move(place.home, target / "home")


def environment(place: Place) -> dict[str, str]:
    """The variables of an agent's run: those of this process less what would steer an agent, and homes of its own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_OTHERS)}
    homes = {f"XDG_{name}_HOME": str(place.home / name.lower()) for name in ("CONFIG", "DATA", "STATE", "CACHE")}
    # `python` is then the one that runs the checks, too.
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    git = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    return {**kept, **homes, **git, "HOME": str(place.home), "PATH": path, "NO_COLOR": "1"}


def emptied(folder: Path) -> None:
    """See that the folder is there, of this user only, and empty."""
    _remove(folder)
    folder.mkdir(mode=0o700, parents=True)


def _remove(path: Path) -> None:
    """Remove a folder; an agent may have taken away its permissions."""
    if path.is_dir():
        for folder in (path, *(found for found in path.rglob("*") if found.is_dir() and not found.is_symlink())):
            folder.chmod(0o700)
        shutil.rmtree(path)
