"""edit: replaces an exact string. Everything outside the replaced text stays as it is, byte for byte."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aerix_server.config.bounds import FILE_TOOL_S
from aerix_server.tools.base import Name, Output, Tool, ToolContext, ToolError, ToolInput
from aerix_server.tools.known import Known, check_fits, check_text, held
from aerix_server.tools.names import no_such_path, resolve
from aerix_server.tools.replacing import Replaced, at_lines, replace
from aerix_server.tools.saving import save
from aerix_server.tools.syntax import syntax_note
from aerix_server.tools.text import NotText, Text, decode, encode


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
    with held(path, ctx) as known:
        return _edit_held(call, path, known, ctx)


def _edit_held(call: EditInput, path: Path, known: Known, ctx: ToolContext) -> Output:
    shown = known.target.shown(ctx)
    if known.data is None:
        raise no_such_path(path, ctx, "To make a new file use write.")
    _check(call, known.data)
    file = _decode(known.data, shown)
    check_fits(call.new, file, shown)
    replaced = replace(file.text, call.old, call.new, call.replace_all, shown)
    data = _encode(replaced.text, file, shown)
    if data == known.data:
        raise ToolError(f"{shown} would stay as it is: {_why_the_same(replaced)}")
    stale = known.changed(ctx)
    late = _late(known.writer(ctx)) if stale else ""
    save(known.target, data, ctx)
    known.note_write(data, ctx)
    # Not after a change that the agent has not seen, nor of a file it never read: a write would run over what is there.
    if known.read_before(ctx) and not stale:
        known.note_view(data, ctx)
    note = syntax_note(known.target.real.name, known.data, data)
    return Output(_told(shown, replaced) + late + note, touched=(known.target.changed_name(ctx),))


def _late(writer: str | None) -> str:
    return " (the file had changed since you read it" + (f", by {writer})" if writer else ")")


def _why_the_same(replaced: Replaced) -> str:
    if replaced.told:
        return f"matched by {replaced.told.partition(';')[0]}, {at_lines(replaced.lines)} reads like new already"
    return "old and new differ in line endings only"


def _check(call: EditInput, data: bytes) -> None:
    check_text(call.old, "old")
    check_text(call.new, "new")
    if not call.old:
        use = "Give the text to replace as old, or use write for a whole file."
        raise ToolError("old is empty", use if data else "Use write to give the empty file its text.")
    if call.old == call.new:
        raise ToolError("old and new are the same; nothing to change", "Give as new the text that old shall become.")


def _decode(data: bytes, shown: str) -> Text:
    try:
        return decode(data)
    except NotText as error:
        raise ToolError(f"{shown} is {error}; it is not edited", "Use bash for a file that is no text.") from None


def _encode(text: str, file: Text, shown: str) -> bytes:
    try:
        return encode(text, file)
    except UnicodeEncodeError:
        raise ToolError(f"{shown} cannot hold the new text in {file.encoding}") from None


def _told(shown: str, replaced: Replaced) -> str:
    count = f"{len(replaced.lines)} replacement" + ("s" if len(replaced.lines) > 1 else "")
    matched = f", matched by {replaced.told}" if replaced.told else ""
    inside = f"; inside longer words at {at_lines(replaced.inside)}, is that meant?" if replaced.inside else ""
    return f"edited {shown}: {count} at {at_lines(replaced.lines)}{matched}{inside}"
