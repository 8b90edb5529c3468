"""read: numbered lines of a file, or the entries of a directory."""

from __future__ import annotations

import asyncio
import io
import os
import stat
from pathlib import Path

from aerix_server.config.bounds import FILE_TOOL_S, READ_LINES
from aerix_server.tools.base import Count, Name, Output, Refusal, Tool, ToolContext, ToolError, ToolInput
from aerix_server.tools.names import display, escape_name, no_such_path, os_sentence, resolve, special_kind
from aerix_server.tools.pages import Page, read_page
from aerix_server.tools.text import NotText


class ReadInput(ToolInput):
    path: Name
    offset: Count = 1
    limit: Count = READ_LINES


class Read(Tool[ReadInput]):
    name = "read"
    description = "Shows limit (200) lines of a file with their numbers, from line offset; of a directory its entries."
    input_model = ReadInput
    only_looks = True
    limit_s = FILE_TOOL_S

    async def run(self, call: ReadInput, ctx: ToolContext) -> Output:
        return await asyncio.to_thread(_read, call, ctx)


def _read(call: ReadInput, ctx: ToolContext) -> Output:
    path = resolve(call.path, ctx)
    unsaved = ctx.overlay(path)
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except FileNotFoundError:
        if unsaved is None:
            raise no_such_path(path, ctx) from None
        return Output(_unsaved_page(unsaved, call, ctx))
    except OSError as error:
        raise os_sentence("read", path, ctx, error) from error
    if stat.S_ISDIR(mode):
        return Output(_entries(path, call, ctx))
    kind = special_kind(mode)
    if kind:
        raise Refusal(f"{display(path, ctx.cwd)} is {kind}; only plain files are read")
    text = _file_page(path, call, ctx)
    return Output(text if unsaved is None else _unsaved_page(unsaved, call, ctx))


def _file_page(path: Path, call: ReadInput, ctx: ToolContext) -> str:
    """The page; the agent has then seen the file as it is now."""
    try:
        # Without O_NONBLOCK a file of the kernel's, or a pipe put in its place, could hold the thread for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            page = read_page(file, call.offset, call.limit, lambda: _check(ctx))
    except OSError as error:
        raise os_sentence("read", path, ctx, error) from error
    except NotText as error:
        look = "Use bash to look at it, as with file or od -c, if it matters."
        raise ToolError(f"{display(path, ctx.cwd)} is {error}; it is not shown", look) from None
    text = _render(page, display(path, ctx.cwd))
    ctx.views.saw(Path(os.path.realpath(path)), page.digest)
    return text


def _unsaved_page(text: str, call: ReadInput, ctx: ToolContext) -> str:
    data = io.BytesIO(text.encode("utf-8", "surrogatepass"))
    try:
        page = read_page(data, call.offset, call.limit, lambda: _check(ctx))
    except NotText as error:
        raise ToolError(f"the editor's unsaved text is {error}") from None
    return f"{_render(page, call.path)}\n[the unsaved text of the open editor is shown]"


def _check(ctx: ToolContext) -> None:
    if ctx.cancelled.is_set():
        raise ToolError("cancelled")


def _render(page: Page, shown: str) -> str:
    if page.total == 0:
        return "[empty file]"
    if page.first > page.total:
        told = f"offset {page.first} is past the end: {shown} has {_count(page.total, 'line')}"
        raise ToolError(told, f"Read it with an offset of at most {page.total}.")
    lines = [f"{number:6d}\t{line}" for number, line in enumerate(page.lines, page.first)]
    if page.bad_byte is not None:
        lines.append(f"[not valid UTF-8 at byte {page.bad_byte}: such bytes are shown as \ufffd]")
    last = page.first + len(page.lines) - 1
    return "\n".join(lines + _place(page.first, last, page.total))


def _place(first: int, last: int, total: int) -> list[str]:
    """Which part of the whole this is; nothing when it is all."""
    if last < total:
        return [f"[lines {first}-{last} of {total}; continue with offset={last + 1}]"]
    return [f"[lines {first}-{last} of {total}]"] if first > 1 else []


def _entries(path: Path, call: ReadInput, ctx: ToolContext) -> str:
    try:
        found = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        raise os_sentence("list", path, ctx, error) from error
    if not found:
        return "[empty directory]"
    if call.offset > len(found):
        shown = display(path, ctx.cwd)
        counted = _count(len(found), "entry", "entries")
        told = f"offset {call.offset} is past the end: {shown} has {counted}"
        raise ToolError(told, f"Read it with an offset of at most {len(found)}.")
    part = found[call.offset - 1 : call.offset - 1 + call.limit]
    last = call.offset + len(part) - 1
    place = [line.replace("[lines", "[entries") for line in _place(call.offset, last, len(found))]
    return "\n".join([_entry(entry) for entry in part] + place)


def _entry(entry: os.DirEntry[str]) -> str:
    name = escape_name(entry.name)
    if entry.is_symlink():
        return f"{name} -> {escape_name(os.readlink(entry.path))}"  # noqa: PTH115
    return f"{name}/" if entry.is_dir() else name


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
