"""context: lets the model see and thin out its own context. The work is the runtime's, behind a port."""

from __future__ import annotations

from typing import Literal

from aerix_server.tools.base import Output, Tool, ToolContext, ToolError, ToolInput


class ContextInput(ToolInput):
    op: Literal["status", "drop", "summarize", "pin", "unpin", "note"]
    ids: list[str] | None = None
    text: str | None = None


class Context(Tool[ContextInput]):
    name = "context"
    description = (
        "Manages your context: status lists segments with ids and tokens; drop, pin and unpin take ids; "
        "summarize replaces ids with text; note keeps text for good."
    )
    input_model = ContextInput

    async def run(self, call: ContextInput, ctx: ToolContext) -> Output:
        match call.op:
            case "status":
                return Output(await ctx.context.status())
            case "drop":
                return Output(await ctx.context.drop(_ids(call)))
            case "summarize":
                return Output(await ctx.context.summarize(_ids(call), _text(call)))
            case "pin" | "unpin":
                return Output(await ctx.context.pin(_ids(call), call.op == "pin"))
            case "note":
                return Output(await ctx.context.note(_text(call)))


def _ids(call: ContextInput) -> list[str]:
    if not call.ids:
        status = "Use op status to see the ids."
        raise ToolError(f"ids is missing: op {call.op} needs the ids of segments, as status lists them", status)
    return list(dict.fromkeys(call.ids))


def _text(call: ContextInput) -> str:
    if call.text is None or not call.text.strip():
        raise ToolError(f"text is missing: op {call.op} needs it")
    return call.text
