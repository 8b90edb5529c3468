"""write: creates a file or replaces all of one. A replaced file keeps its line endings and its byte-order mark."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from aerix_server.config.bounds import FILE_TOOL_S
from aerix_server.tools.base import Name, Output, Refusal, Tool, ToolContext, ToolError, ToolInput
from aerix_server.tools.endings import with_endings
from aerix_server.tools.known import Known, check_fits, check_text, held
from aerix_server.tools.names import escape_name, resolve
from aerix_server.tools.saving import save
from aerix_server.tools.syntax import syntax_note
from aerix_server.tools.text import NotText, Text, count_lines, decode, encode

_REPLACEMENT = "\ufffd"


class WriteInput(ToolInput):
    path: Name
    content: str


class Write(Tool[WriteInput]):
    name = "write"
    description = "Creates a file, or replaces all of it, with content. Use edit to change a part."
    input_model = WriteInput
    limit_s = FILE_TOOL_S

    async def run(self, call: WriteInput, ctx: ToolContext) -> Output:
        return await asyncio.to_thread(_write, call, ctx)


def _write(call: WriteInput, ctx: ToolContext) -> Output:
    check_text(call.content, "content")
    if call.path.endswith("/"):
        raise ToolError(
            f"{escape_name(call.path)} names a directory", "Give the path of a file in it; folders are made."
        )
    content, told = without_numbers(call.content)
    with held(resolve(call.path, ctx), ctx) as known:
        output = _write_held(content, known, ctx)
    return replace(output, text=output.text + told)


def without_numbers(content: str) -> tuple[str, str]:
    """`content` without the line numbers that `read` shows, where each of its lines has its own; and what to say."""
    lines = content.split("\n")
    numbered = lines[:-1] if lines[-1] == "" else lines
    heads = [f"{number:6d}\t" for number in range(1, len(numbered) + 1)]
    if not numbered or not all(line.startswith(head) for line, head in zip(numbered, heads, strict=True)):
        return content, ""
    bare = [line.removeprefix(head) for line, head in zip(numbered, heads, strict=True)]
    return "\n".join(
        [*bare, *lines[len(numbered) :]]
    ), "; the line numbers at its lines are not part of a file: left out"


def _write_held(content: str, known: Known, ctx: ToolContext) -> Output:
    shown = known.target.shown(ctx)
    if known.changed(ctx):
        writer = known.writer(ctx)
        by = f" (by {writer})" if writer else ""
        raise Refusal(
            f"{shown} changed since you read it{by}; read it again, then write",
            f"Read {shown} again, then write it with both changes in it.",
        )
    data, note = _bytes_for(content, known, shown)
    if data == known.data:
        known.note_view(data, ctx)
        return Output(f"{shown} holds this text already; nothing was written")
    if not known.read_before(ctx):
        _refuse_unread(known, shown)
    save(known.target, data, ctx)
    known.note_write(data, ctx)
    known.note_view(data, ctx)
    text = _told(shown, content, known, note) + syntax_note(known.target.real.name, known.data, data)
    return Output(text, touched=(known.target.changed_name(ctx),))


def _refuse_unread(known: Known, shown: str) -> None:
    """Raises Refusal for a file with something in it: the agent would run over what it has never seen."""
    if not known.data:
        return
    old = _text_of(known)
    if old is None:
        raise Refusal(
            f"{shown} exists, is no text ({len(known.data)} bytes) and so cannot be read; it is not replaced unread",
            "Write to another path, or move the file away with bash first.",
        )
    if lines := count_lines(old.text):
        raise Refusal(
            f"{shown} exists and has {_lines(lines)} that you have not read; read it first, or use edit",
            f"Read {shown}, then change it with edit, or write all of it.",
        )


def _bytes_for(content: str, known: Known, shown: str) -> tuple[bytes, str]:
    """What to write, and a note for the model on what was kept or lost."""
    if known.data is None:
        return content.encode("utf-8"), ""
    old = _text_of(known)
    if old is None:
        return content.encode("utf-8"), ""
    if old.bad_byte is not None:
        if _REPLACEMENT in content:
            check_fits(content, old, shown)
        return content.encode("utf-8"), f"; it was not valid UTF-8 at byte {old.bad_byte} and is UTF-8 now"
    new = with_endings(old.text, content.removeprefix("\ufeff"), None)
    kept = "; its CRLF line endings were kept" if "\r\n" in new and "\r\n" not in content else ""
    return encode(new, old), kept


def _text_of(known: Known) -> Text | None:
    try:
        return decode(known.data or b"")
    except NotText:
        return None


def _told(shown: str, content: str, known: Known, note: str) -> str:
    lines = _lines(count_lines(content))
    if known.data is None:
        return f"created {shown} ({lines})"
    old = _text_of(known)
    return f"replaced {shown} ({lines}, was {count_lines(old.text) if old else 0}){note}"


def _lines(count: int) -> str:
    return f"{count} line" if count == 1 else f"{count} lines"
