"""write: creates a file or replaces all of one. A replaced file keeps its line endings and its byte-order mark."""

from __future__ import annotations

import asyncio

from aerix_server.config.bounds import FILE_TOOL_S
from aerix_server.tools.base import Name, Output, Refusal, Tool, ToolContext, ToolInput
from aerix_server.tools.endings import with_endings
from aerix_server.tools.known import Known, check_fits, check_text, look_up
from aerix_server.tools.names import resolve
from aerix_server.tools.saving import save
from aerix_server.tools.text import NotText, Text, count_lines, decode, digest, encode

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
    known = look_up(resolve(call.path, ctx), ctx)
    shown = known.target.shown(ctx)
    if known.changed(ctx):
        raise Refusal(f"{shown} changed since you read it; read it again, then write")
    data, note = _bytes_for(call.content, known, shown)
    if data == known.data:
        ctx.views.seen[known.target.real] = digest(data)
        return Output(f"{shown} holds this text already; nothing was written")
    unseen = known.data is not None and not known.read_before(ctx)
    save(known.target, data, ctx)
    ctx.views.seen[known.target.real] = digest(data)
    text = _told(shown, call.content, known, note, unseen)
    return Output(text, touched=(known.target.changed_name(ctx),))


def _bytes_for(content: str, known: Known, shown: str) -> tuple[bytes, str]:
    """What to write, and a note for the model on what was kept or lost."""
    if known.data is None:
        return content.encode("utf-8"), ""
    old = _text_of(known)
    if old is None:
        return content.encode("utf-8"), f"; it was binary, {len(known.data)} bytes"
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


def _told(shown: str, content: str, known: Known, note: str, unseen: bool) -> str:
    lines = _lines(count_lines(content))
    if known.data is None:
        return f"created {shown} ({lines})"
    old = _text_of(known)
    if old is None:
        return f"replaced {shown} ({lines}{note})"
    was = count_lines(old.text)
    blind = f"; the {_lines(was)} replaced had not been read" if unseen and was else ""
    return f"replaced {shown} ({lines}, was {was}){note}{blind}"


def _lines(count: int) -> str:
    return f"{count} line" if count == 1 else f"{count} lines"
