"""Running ripgrep over given files: names in, matches out, within a time and a count.

Its plain output is read, not its JSON: of a line of millions of matches the JSON holds every one.
"""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from aerix_server.tools.base import ToolError
from aerix_server.tools.regex import find_ripgrep

_ARGUMENT_BYTES = 128 * 1024
_DASH = "./-"
_BINARY = re.compile(rb"(.*): binary file matches \(found .*\)\Z", re.DOTALL)
_MATCH = re.compile(rb"(\d+):(\d+):(.*)\Z", re.DOTALL)


@dataclass(frozen=True)
class Match:
    """`line` and `column` (in bytes) count from 1; `text` is the line without its end."""

    name: str
    line: int
    column: int
    text: bytes


@dataclass
class Search:
    """What a search found. `binary` are files that match and are no text; `failed` those that could not be read."""

    matches: list[Match] = field(default_factory=list)
    binary: set[str] = field(default_factory=set)
    failed: int = 0
    searched: int = 0
    full: bool = False
    late: bool = False

    def drop_binary(self, name: str) -> None:
        """The file is no text after all: what was found in it does not count."""
        self.binary.add(name)
        self.matches = [match for match in self.matches if match.name != name]


@dataclass(frozen=True)
class Bounds:
    """When a search ends early: at `most` matches, at `deadline` (time.monotonic) or when `stop` says so."""

    most: int
    deadline: float
    stop: Callable[[], bool]


def search_files(pattern: str, root: Path, names: Sequence[str], search: Search, bounds: Bounds) -> None:
    """Search files under `root` in the given order, adding to `search`. Raises ToolError when stopped."""
    for batch in batches(names):
        # Alone, a dash would be standard input.
        files = [_DASH if name == "-" else name for name in batch]
        _run(pattern, ["--", *files], root, None, search, bounds)
        if search.full or search.late:
            return
        search.searched += len(batch)


def search_text(pattern: str, name: str, text: str, search: Search, bounds: Bounds) -> None:
    """Search `text` as if it were the file `name`."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8", "replace"))
        file.seek(0)
        _run(pattern, ["-"], None, (name, file), search, bounds)
    search.searched += 1


def batches(names: Sequence[str]) -> Iterator[list[str]]:
    """The names in parts that fit on a command line."""
    batch: list[str] = []
    size = 0
    for name in names:
        length = len(os.fsencode(name)) + 1
        if batch and size + length > _ARGUMENT_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(name)
        size += length
    if batch:
        yield batch


def _run(
    pattern: str,
    files: list[str],
    root: Path | None,
    given: tuple[str, IO[bytes]] | None,
    search: Search,
    bounds: Bounds,
) -> None:
    """One ripgrep. A single thread, so that matches come in the order of the files and a full search is the same
    each time."""
    flags = ["--no-config", "--null", "--with-filename", "--line-number", "--column", "--no-heading", "--color=never"]
    # Without a memory map it looks for NUL all through a file, as read does, and not at its head alone.
    command = [find_ripgrep(), *flags, "--crlf", "--no-mmap", "--threads=1", "-e", pattern, *files]
    name, source = given if given else (None, subprocess.DEVNULL)
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, cwd=root, stdin=source, stdout=subprocess.PIPE, stderr=errors)
        try:
            for line in _lines(process, search, bounds):
                _take(line, name, search)
                if len(search.matches) > bounds.most:
                    search.full = True
                    break
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        errors.seek(0)
        search.failed += sum(1 for line in errors if line.startswith(b"rg: "))


def _lines(process: subprocess.Popen[bytes], search: Search, bounds: Bounds) -> Iterator[bytes]:
    """Lines of output without their ends."""
    assert process.stdout is not None
    handle = process.stdout.fileno()
    selector = selectors.DefaultSelector()
    selector.register(handle, selectors.EVENT_READ)
    with selector:
        yield from _split_lines(lambda: _next_piece(handle, selector, search, bounds))


def _next_piece(handle: int, selector: selectors.BaseSelector, search: Search, bounds: Bounds) -> bytes:
    """What comes next; empty at the end, or when the time is up."""
    while True:
        if bounds.stop():
            raise ToolError("cancelled")
        if time.monotonic() > bounds.deadline:
            search.late = True
            return b""
        if selector.select(0.1):
            return os.read(handle, 256 * 1024)


def _split_lines(next_piece: Callable[[], bytes]) -> Iterator[bytes]:
    """Lines without their ends, each with its name: one that holds a newline is put together again."""
    parts: list[bytes] = []
    while piece := next_piece():
        *whole, rest = piece.split(b"\n")
        for end in whole:
            line = b"".join([*parts, end])
            if b"\0" in line or _BINARY.match(line):
                yield line
                parts = []
            else:
                parts = [line, b"\n"]
        parts.append(rest)


def _take(line: bytes, given: str | None, search: Search) -> None:
    raw_name, nul, rest = line.partition(b"\0")
    if not nul:
        found = _BINARY.match(line)
        assert found is not None
        name = given or _name(found[1])
        search.drop_binary(name)
        return
    found = _MATCH.match(rest)
    if found:
        name = given or _name(raw_name)
        search.matches.append(Match(name, int(found[1]), int(found[2]), found[3].removesuffix(b"\r")))


def _name(raw: bytes) -> str:
    name = os.fsdecode(raw)
    return "-" if name == _DASH else name
