"""What is there under the working directory, for the paths of the next turn. Blocking."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from aerix_server.config.bounds import KNOWN_PATHS, NAMES_BESIDE
from aerix_server.runtime.path_grammar import KnownPaths
from aerix_server.tools.files import list_files
from aerix_server.tools.names import escape_name


class TooManyPaths(Exception):
    """More than KNOWN_PATHS; the message is a sentence for the user."""


def known_paths(root: Path, stop: Callable[[], bool]) -> KnownPaths:
    """The git file set with its directories, and what else lies in those, such as ignored files.

    Raises TooManyPaths, and ToolError when it was stopped.
    """
    listed = {entry.name for entry in list_files(root, stop).files}
    directories = {parent for name in listed for parent in _parents(name)}
    files, hidden = set(listed), set[str]()
    _bound(len(files) + len(directories))
    for directory in ["", *directories]:
        _look_into(root, directory, directories, files, hidden)
        _bound(len(files) + len(directories) + len(hidden))
    beside = _names(root.parent) - {root.name} | {".."}
    return KnownPaths(
        _shown(files),
        _shown(directories),
        _shown(hidden),
        _shown(beside) if len(beside) <= NAMES_BESIDE else (),
        _shown(_names(Path("/"))),
    )


def _names(directory: Path) -> set[str]:
    try:
        return set(os.listdir(directory))  # noqa: PTH208 (names are all that is needed)
    except OSError:
        return set()


def _parents(name: str) -> list[str]:
    steps = name.split("/")[:-1]
    return ["/".join(steps[:length]) for length in range(1, len(steps) + 1)]


def _look_into(root: Path, directory: str, known: set[str], files: set[str], hidden: set[str]) -> None:
    try:
        entries = list(os.scandir(root / directory))
    except OSError:
        hidden |= {directory} - {""}
        return
    for entry in entries:
        name = f"{directory}/{entry.name}" if directory else entry.name
        if name in known or name in files:
            continue
        try:
            mode = entry.stat().st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode):
            hidden.add(name)
        elif stat.S_ISREG(mode):
            files.add(name)


def _bound(count: int) -> None:
    if count > KNOWN_PATHS:
        raise TooManyPaths(f"there are more than {KNOWN_PATHS} files and directories")


def _shown(names: set[str]) -> tuple[str, ...]:
    return tuple(escape_name(name) for name in sorted(names))
