"""edit: replaces an exact string. Everything outside the replaced text stays as it is, byte for byte."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aerix_server.config.bounds import FILE_TOOL_S
from aerix_server.tools.base import Name, Output, Tool, ToolContext, ToolError, ToolInput
from aerix_server.tools.endings import Plain, neighbour_ending, plain, with_endings
from aerix_server.tools.known import check_fits, check_text, look_up
from aerix_server.tools.names import no_such_path, resolve
from aerix_server.tools.nearest import not_found
from aerix_server.tools.saving import save
from aerix_server.tools.text import NotText, Text, decode, digest, encode

_LINES_NAMED = 20


class EditInput(ToolInput):
    path: Name
    old: str
    new: str
    replace_all: bool = False


class Edit(Tool[EditInput]):
    name = "edit"
    description = (
        "Replaces the exact text old in a file by new. old must be there once, or replace_all be true. "
        "old has no line numbers."
    )
    input_model = EditInput
    limit_s = FILE_TOOL_S

    async def run(self, call: EditInput, ctx: ToolContext) -> Output:
        return await asyncio.to_thread(_edit, call, ctx)


def _edit(call: EditInput, ctx: ToolContext) -> Output:
    path = resolve(call.path, ctx)
    known = look_up(path, ctx)
    shown = known.target.shown(ctx)
    if known.data is None:
        raise no_such_path(path, ctx)
    _check(call)
    file = _decode(known.data, shown)
    check_fits(call.new, file, shown)
    replaced = replace(file.text, call.old, call.new, call.replace_all, shown)
    data = _encode(replaced.text, file, shown)
    if data == known.data:
        raise ToolError(f"{shown} would stay as it is: old and new differ in line endings only")
    stale = known.changed(ctx)
    save(known.target, data, ctx)
    # A file the agent never saw whole is still unread after the edit, so a later write says so.
    if known.read_before(ctx):
        ctx.views.seen[known.target.real] = digest(data)
    return Output(_told(shown, replaced.lines, stale), touched=(known.target.changed_name(ctx),))


def _check(call: EditInput) -> None:
    check_text(call.old, "old")
    check_text(call.new, "new")
    if not call.old:
        raise ToolError("old is empty; give the text to replace, or use write for a whole file")
    if call.old == call.new:
        raise ToolError("old and new are the same; nothing to change")


def _decode(data: bytes, shown: str) -> Text:
    try:
        return decode(data)
    except NotText as error:
        raise ToolError(f"{shown} is {error}; it is not edited") from None


def _encode(text: str, file: Text, shown: str) -> bytes:
    try:
        return encode(text, file)
    except UnicodeEncodeError:
        raise ToolError(f"{shown} cannot hold the new text in {file.encoding}") from None


@dataclass(frozen=True)
class Replaced:
    """The whole new text, and the lines of the old one where the matches began."""

    text: str
    lines: tuple[int, ...]


def replace(text: str, old: str, new: str, replace_all: bool, shown: str) -> Replaced:
    """`text` with `old` replaced by `new`, taken literally. `\\n` in `old` matches `\\r\\n` too.

    Raises ToolError when `old` is not there, or is there more than once without `replace_all`.
    """
    mark = "\ufeff"
    view = plain(text)
    if old.startswith(mark) and not text.startswith(mark):
        old, new = old.removeprefix(mark), new.removeprefix(mark)
    wanted = old.replace("\r\n", "\n")
    starts = _find_all(view.text, wanted)
    if not starts:
        raise ToolError(not_found(view.text, wanted, shown))
    lines = tuple(_line_numbers(view.text, starts))
    if len(starts) > 1 and not replace_all:
        raise ToolError(
            f"old was found {len(starts)} times in {shown} ({_at(lines)}); give more of the text around the one you "
            "mean, or replace_all"
        )
    return Replaced(_spliced(text, view, starts, len(wanted), new), lines)


def _find_all(text: str, wanted: str) -> list[int]:
    """Where `wanted` begins, left to right, without overlaps."""
    starts: list[int] = []
    at = text.find(wanted) if wanted else -1
    while at >= 0:
        starts.append(at)
        at = text.find(wanted, at + len(wanted))
    return starts


def _line_numbers(text: str, starts: list[int]) -> list[int]:
    numbers: list[int] = []
    line, last = 1, 0
    for start in starts:
        line += text.count("\n", last, start)
        last = start
        numbers.append(line)
    return numbers


def _spliced(text: str, view: Plain, starts: list[int], length: int, new: str) -> str:
    parts: list[str] = []
    last = 0
    # Only in a file of mixed endings does it matter where a new line stands.
    everywhere = new if "\n" not in new else _uniform(view, new)
    for start in starts:
        begin, end = view.original(start), view.original(start + length)
        parts.append(text[last:begin])
        parts.append(_ended(text, begin, end, new) if everywhere is None else everywhere)
        last = end
    return "".join([*parts, text[last:]])


def _uniform(view: Plain, new: str) -> str | None:
    """`new` with the one ending that all lines have; None in a file of mixed endings."""
    lines = view.text.count("\n")
    if lines and len(view.carriages) not in (0, lines):
        return None
    return with_endings("", new, ("\r\n" if view.carriages else "\n") if lines else None)


def _ended(text: str, begin: int, end: int, new: str) -> str:
    return with_endings(text[begin:end], new, neighbour_ending(text, begin, end))


def _told(shown: str, lines: tuple[int, ...], stale: bool) -> str:
    count = f"{len(lines)} replacement" + ("s" if len(lines) > 1 else "")
    late = " (the file had changed since you read it)" if stale else ""
    return f"edited {shown}: {count} at {_at(lines)}{late}"


def _at(lines: tuple[int, ...]) -> str:
    numbers = list(dict.fromkeys(lines))
    named = ", ".join(str(line) for line in numbers[:_LINES_NAMED])
    more = f" and {len(numbers) - _LINES_NAMED} more" if len(numbers) > _LINES_NAMED else ""
    return ("line " if len(numbers) == 1 else "lines ") + named + more
