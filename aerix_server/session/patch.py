"""git's own words about two trees → the files and hunks of a DiffResult. Pure."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from aerix_server.protocol.messages import FileDiff, Hunk
from aerix_server.tools.names import escape_name

NAMES_SHOWN = 3

Status = Literal["added", "modified", "deleted", "renamed", "mode"]
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class Changed:
    """One entry of `--raw -z --numstat`; `sections` is how many `diff --git` parts its patch has."""

    path: bytes
    status: Status
    sections: int
    added: int = 0
    removed: int = 0
    binary: bool = False


def parse_changed(told: bytes) -> list[Changed]:
    """Of `git diff-tree -r -M -z --raw --numstat <tree> <tree>`, in git's order."""
    entries: dict[bytes, Changed] = {}
    fields = iter(told.split(b"\0"))
    for field in fields:
        if field.startswith(b":"):
            changed = _raw(field, fields)
            entries[changed.path] = changed
        elif field.strip(b"\n"):
            path, added, removed, binary = _numbers(field, fields)
            before = entries[path]
            entries[path] = Changed(path, before.status, before.sections, added, removed, binary)
    return list(entries.values())


def _raw(field: bytes, fields: Iterator[bytes]) -> Changed:
    old_mode, new_mode, old_id, new_id, letter = field[1:].split(b" ")
    path = next(fields)
    kind = letter[:1]
    if kind in b"RC":
        path = next(fields)
    if kind == b"T":
        return Changed(path, "modified", 2)
    return Changed(path, _status(kind, old_mode != new_mode and old_id == new_id), 1)


def _status(kind: bytes, only_mode: bool) -> Status:
    known: dict[bytes, Status] = {b"A": "added", b"D": "deleted", b"R": "renamed", b"C": "added"}
    return known.get(kind, "mode" if only_mode else "modified")


def _numbers(field: bytes, fields: Iterator[bytes]) -> tuple[bytes, int, int, bool]:
    added, removed, path = field.split(b"\t", 2)
    if not path:  # A rename: the two names follow.
        next(fields)
        path = next(fields)
    if added == b"-":
        return path, 0, 0, True
    return path, int(added), int(removed), False


def split_patch(patch: bytes) -> list[bytes]:
    """The `diff --git` parts. Every line of a file begins with one of ` +-\\`, so only a head begins so."""
    starts = [match.start() for match in re.finditer(rb"^diff --git ", patch, re.MULTILINE)]
    return [patch[start:end] for start, end in itertools.pairwise([*starts, len(patch)])]


def file_diff(changed: Changed, sections: list[bytes]) -> FileDiff:
    path = display(changed.path)
    seen: dict[str, int] = {}
    return FileDiff(
        path=path,
        status=changed.status,
        added=changed.added,
        removed=changed.removed,
        binary=changed.binary,
        hunks=[hunk for section in sections for hunk in _hunks(path, section, seen)],
    )


def _hunks(path: str, section: bytes, seen: dict[str, int]) -> Iterator[Hunk]:
    lines = section.split(b"\n")
    starts = [number for number, line in enumerate(lines) if line.startswith(b"@@ ")]
    for start, end in itertools.pairwise([*starts, len(lines)]):
        match = _HUNK.match(lines[start])
        if match is None:
            continue
        body = b"\n".join(lines[start + 1 : end]).removesuffix(b"\n").decode("utf-8", "replace") + "\n"
        old_start, old_lines, new_start, new_lines = (int(number) if number else 1 for number in match.groups())
        yield Hunk(
            id=_hunk_id(path, body, seen),
            old_start=old_start,
            old_lines=old_lines,
            new_start=new_start,
            new_lines=new_lines,
            text=body,
        )


def _hunk_id(path: str, body: str, seen: dict[str, int]) -> str:
    """Of the path and the changed text alone, so that it stays when other hunks move it."""
    base = hashlib.sha256(f"{path}\0{body}".encode("utf-8", "surrogateescape")).hexdigest()[:12]
    seen[base] = seen.get(base, 0) + 1
    return base if seen[base] == 1 else f"{base}.{seen[base]}"


def some_names(paths: Iterable[str]) -> str:
    """A few of the paths, on one line of a notice."""
    shown = [escape_name(path) for path in paths]
    more = f" and {len(shown) - NAMES_SHOWN} more" if len(shown) > NAMES_SHOWN else ""
    return ", ".join(shown[:NAMES_SHOWN]) + more


def display(path: bytes) -> str:
    """A name as every list gives it: what is not UTF-8 as a lone surrogate, which gives the same bytes back."""
    return os.fsdecode(path)
