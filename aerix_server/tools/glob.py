"""glob: files whose path matches a pattern."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path

from aerix_server.config.bounds import FILE_TOOL_S, GLOB_PATHS
from aerix_server.tools.base import Name, Output, Tool, ToolContext, ToolError, ToolInput
from aerix_server.tools.files import FileSet, files_text, list_files, list_ignored
from aerix_server.tools.names import display, escape_name, look_at, resolve
from aerix_server.tools.patterns import matcher, split_base


class GlobInput(ToolInput):
    pattern: Name
    path: Name | None = None


class Glob(Tool[GlobInput]):
    name = "glob"
    description = "Lists files whose path matches pattern, such as by ending; * crosses /. path is where to look."
    input_model = GlobInput
    only_looks = True
    limit_s = FILE_TOOL_S

    async def run(self, call: GlobInput, ctx: ToolContext) -> Output:
        return await asyncio.to_thread(_glob, call, ctx)


def _glob(call: GlobInput, ctx: ToolContext) -> Output:
    if not call.pattern or "\0" in call.pattern:
        raise ToolError("pattern is empty" if not call.pattern else "pattern holds a NUL character")
    base, pattern = split_base(call.pattern)
    root = directory(f"{call.path}/{base}" if call.path and base.startswith("..") else base or call.path, ctx)
    found = list_files(root, ctx.cancelled.is_set)
    names = [entry.name for entry in found.files]
    matching = _matching(names, pattern)
    if matching:
        return Output(_listed(matching, root, found, ctx))
    return Output(_nothing(call.pattern, pattern, names, found, ctx))


def directory(path: Name | None, ctx: ToolContext) -> Path:
    """The directory to look in; the working directory by default. Raises ToolError when it is none."""
    root = resolve(path, ctx) if path else ctx.cwd
    if not stat.S_ISDIR(look_at(root, "list", ctx).st_mode):
        raise ToolError(f"{display(root, ctx.cwd)} is a file, not a directory", "Give the directory that it lies in.")
    return root


def _matching(names: list[str], pattern: str) -> list[str]:
    matches = matcher(pattern)
    return [name for name in names if matches(name) or _matches_shown(name, matches)]


def _matches_shown(name: str, matches: Callable[[str], bool]) -> bool:
    """A name that is shown escaped is found by what is shown, too."""
    shown = escape_name(name)
    return shown != name and matches(shown)


def _listed(names: list[str], root: Path, found: FileSet, ctx: ToolContext) -> str:
    lines = [display(root / name, ctx.cwd) for name in names[:GLOB_PATHS]]
    if len(names) > GLOB_PATHS:
        lines.append(f"[{GLOB_PATHS} of {len(names)} files shown; narrow the pattern]")
    return "\n".join(lines + [f"[{note}]" for note in found.notes])


def _nothing(asked: str, pattern: str, names: list[str], found: FileSet, ctx: ToolContext) -> str:
    """Why there is no match, as far as it can be told."""
    notes = "".join(f"\n[{note}]" for note in found.notes)
    deeper = _matching(names, f"**/{pattern}") if "/" not in pattern else []
    if deeper:
        return f"no file matches {asked} itself; by its name alone:\n{_listed(deeper, found.root, found, ctx)}"
    ignored = len(_matching(list_ignored(found.root, ctx.cancelled.is_set), pattern)) if found.in_git else 0
    if ignored:
        all_are = "the 1 match" if ignored == 1 else f"all {ignored} matches"
        return f"no file to show: {all_are} of {asked} {'is' if ignored == 1 else 'are'} ignored by git{notes}"
    return f"no file matches {asked} ({files_text(len(names))} looked at){notes}"
