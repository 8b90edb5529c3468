"""Two git trees → the files and the unified text of a DiffResult."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from aerix_server.protocol.messages import FileDiff
from aerix_server.session.patch import Changed, file_diff, parse_changed, split_patch

UNIFIED_BYTES = 8 * 1024 * 1024
TREES = ("diff-tree", "-r", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none")
_PATCH = ("-p", "-U3", "--full-index", "--submodule=short")


class Run(Protocol):
    """git where both trees are to be found. Raises GitFailed."""

    def __call__(self, arguments: Sequence[str], *, output_bytes: int = ...) -> bytes: ...


@dataclass(frozen=True)
class Compared:
    """`missing` counts the files whose text is left out, since it would be too much."""

    files: tuple[FileDiff, ...] = ()
    unified: bytes = b""
    missing: int = 0


NOTHING = Compared()


def compare_trees(run: Run, before: str, after: str, room: int, *, absolute: bool = False) -> Compared:
    """At most `room` bytes of text. The names of `absolute` trees begin at the root of the file system, and are shown
    whole; they are not searched for renames. Blocking. Raises GitFailed."""
    options = [*TREES, "--no-renames" if absolute else "-M"]
    changed = parse_changed(run([*options, "-z", "--raw", "--numstat", before, after, "--"]))
    if not changed:
        return NOTHING
    prefixes = ("/", "/") if absolute else ("a/", "b/")
    shown = [f"--src-prefix={prefixes[0]}", f"--dst-prefix={prefixes[1]}"]
    patch = run([*options, *_PATCH, *shown, before, after, "--"], output_bytes=room + 1)
    sections = split_patch(patch)
    if len(patch) > room:
        sections = sections[:-1]
    if absolute:
        changed = [replace(item, path=b"/" + item.path) for item in changed]
    return _joined(changed, sections)


def joined(parts: Iterable[Compared]) -> Compared:
    """One after the other."""
    whole = NOTHING
    for part in parts:
        whole = Compared(
            (*whole.files, *part.files), _ended(whole.unified) + part.unified, whole.missing + part.missing
        )
    return whole


def _ended(text: bytes) -> bytes:
    return text if not text or text.endswith(b"\n") else text + b"\n"


def _joined(changed: Sequence[Changed], sections: list[bytes]) -> Compared:
    """Each file with its sections; past the limit of the text, files have no hunks."""
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
    return Compared(tuple(files), b"".join(shown), missing)
