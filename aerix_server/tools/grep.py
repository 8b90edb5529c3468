"""grep: lines that match a regex, with file and line number, over the same files that glob lists."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from aerix_server.config.bounds import FILE_TOOL_S, GREP_FILE_BYTES, GREP_LINE_CHARS, GREP_MATCHES, GREP_SECONDS
from aerix_server.tools.base import Count, Name, Output, Refusal, Tool, ToolContext, ToolInput
from aerix_server.tools.files import FileEntry, files_text, ignored_entries, list_files, list_ignored
from aerix_server.tools.languages import language
from aerix_server.tools.names import display, escape_name, look_at, resolve, special_kind
from aerix_server.tools.patterns import matcher
from aerix_server.tools.regex import check_pattern
from aerix_server.tools.ripgrep import Bounds, Match, Search, search_files, search_text
from aerix_server.tools.text import cut_window, detect_encoding
from aerix_server.tools.wide import drop_broken

_SNIFF_BYTES = 8192
_IGNORED_NAMED = 3


class GrepInput(ToolInput):
    pattern: Name
    path: Name | None = None
    glob: Name | None = None
    max_matches: Count = GREP_MATCHES


class Grep(Tool[GrepInput]):
    name = "grep"
    description = (
        "Finds lines that match the regex pattern, as file:line:text. path is a file or directory to look in; "
        "glob limits the files."
    )
    input_model = GrepInput
    only_looks = True
    limit_s = FILE_TOOL_S

    async def run(self, call: GrepInput, ctx: ToolContext) -> Output:
        return await asyncio.to_thread(_grep, call, ctx)


@dataclass(frozen=True)
class Scope:
    """The files to search under `root`, and what is told of those that are not."""

    root: Path
    names: tuple[str, ...]
    unsaved: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    in_git: bool = False
    """`root` is a directory whose files git names, so that others there may be ignored."""


def _grep(call: GrepInput, ctx: ToolContext) -> Output:
    deadline = time.monotonic() + GREP_SECONDS
    check_pattern(call.pattern)
    scope = _scope(call, ctx)
    search = Search()
    bounds = Bounds(call.max_matches, deadline, ctx.cancelled.is_set)
    for name, text in scope.unsaved.items():
        if not search.full and not search.late:
            search_text(call.pattern, name, text, search, bounds)
    if not search.full and not search.late:
        search_files(call.pattern, scope.root, scope.names, search, bounds)
    drop_broken(scope.root, set(scope.unsaved), search)
    return Output("\n".join(_report(call, search, scope, ctx)))


def _scope(call: GrepInput, ctx: ToolContext) -> Scope:
    path = resolve(call.path, ctx) if call.path else ctx.cwd
    unsaved = ctx.overlay(path)
    if unsaved is not None:
        return Scope(path.parent, (), {path.name: unsaved})
    seen = look_at(path, "search", ctx)
    if stat.S_ISDIR(seen.st_mode):
        return _directory_scope(path, call.glob, ctx)
    kind = special_kind(seen.st_mode)
    if kind:
        raise Refusal(f"{display(path, ctx.cwd)} is {kind}; only plain files are searched")
    return _split(path.parent, [FileEntry(path.name, seen.st_size)], ctx, ())


def _directory_scope(root: Path, glob: Name | None, ctx: ToolContext) -> Scope:
    found = list_files(root, ctx.cancelled.is_set)
    entries = [entry for entry in found.files if not entry.link]
    notes = list(found.notes)
    if not found.files and found.in_git and (ignored := len(list_ignored(root, ctx.cancelled.is_set))):
        all_are = "the 1 file there is" if ignored == 1 else f"all {ignored} files there are"
        notes.append(f"{all_are} ignored by git; name one as path to search it")
    if glob:
        matches = matcher(glob)
        by_name = "/" not in glob
        entries = [
            entry for entry in entries if matches(entry.name) or (by_name and matches(PurePosixPath(entry.name).name))
        ]
        if found.files and not entries:
            notes.append(f"no file matches the glob {glob}")
    return dataclasses.replace(_split(root, entries, ctx, tuple(notes)), in_git=found.in_git and bool(found.files))


def _split(root: Path, entries: Sequence[FileEntry], ctx: ToolContext, notes: tuple[str, ...]) -> Scope:
    """Take out what is too large or is no text, and what an editor holds unsaved."""
    unsaved: dict[str, str] = {}
    names: list[str] = []
    large = binary = 0
    for entry in entries:
        text = ctx.overlay(root / entry.name)
        if text is not None:
            unsaved[entry.name] = text
        elif entry.size > GREP_FILE_BYTES:
            large += 1
        elif entry.size and language(entry.name) is None and _is_binary(root, entry.name):
            binary += 1
        else:
            names.append(entry.name)
    skipped = []
    if large:
        skipped.append(f"{files_text(large)} over {GREP_FILE_BYTES // (1024 * 1024)} MiB skipped")
    if binary:
        skipped.append(f"{files_text(binary)} skipped: binary")
    return Scope(root, tuple(names), unsaved, (*notes, *skipped))


def _is_binary(root: Path, name: str) -> bool:
    try:
        with open(os.path.join(root, name), "rb") as file:  # noqa: PTH118, PTH123 (once for each file of a tree)
            head = file.read(_SNIFF_BYTES)
    except OSError:
        return False
    bom, encoding = detect_encoding(head)
    body = head[len(bom) :]
    return b"\0" in body if encoding == "utf-8" else "\0" in body.decode(encoding, "replace")


def _report(call: GrepInput, search: Search, scope: Scope, ctx: ToolContext) -> list[str]:
    found = sorted(search.matches[: call.max_matches], key=lambda match: (match.name, match.line))
    lines = [_shown(match, scope.root, ctx) for match in found]
    total = len(scope.names) + len(scope.unsaved)
    if search.full:
        lines.append(f"[{len(found)} shown, more exist]")
    elif not found:
        lines.append(f"no match for {call.pattern} in {files_text(total)}")
        lines += _ignored(scope)
    if search.late:
        lines.append(f"[stopped after {GREP_SECONDS:.0f} s: about {search.searched} of {total} files were searched]")
    if search.binary:
        lines.append(f"[{files_text(len(search.binary))} with a match skipped: binary]")
    if search.failed:
        lines.append(f"[{files_text(search.failed)} could not be read]")
    return lines + [f"[{note}]" for note in scope.notes]


def _ignored(scope: Scope) -> list[str]:
    """What was not searched, by name, where nothing was found."""
    names = ignored_entries(scope.root) if scope.in_git else []
    if not names:
        return []
    more = f" and {len(names) - _IGNORED_NAMED} more" if len(names) > _IGNORED_NAMED else ""
    return [f"[not searched, being ignored by git: {', '.join(map(escape_name, names[:_IGNORED_NAMED]))}{more}]"]


def _shown(match: Match, root: Path, ctx: ToolContext) -> str:
    """`file:line:text`, the text a window around the match where the line is long."""
    start = max(match.column - 1 - 4 * GREP_LINE_CHARS, 0)
    near = match.text[start : match.column - 1 + 4 * GREP_LINE_CHARS]
    at = len(match.text[start : match.column - 1].decode("utf-8", "replace"))
    text = near.decode("utf-8", "replace")
    if len(text) > GREP_LINE_CHARS:
        text = f"{cut_window(text, at, GREP_LINE_CHARS)} [cut: the line has {len(match.text)} bytes]"
    return f"{display(root / match.name, ctx.cwd)}:{match.line}:{text}"
