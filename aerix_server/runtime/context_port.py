"""The context tool's port: the model looks at its own context and changes it. Every op is a context.op event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from aerix_server.protocol.events import ContextOp, Event
from aerix_server.runtime.compact import Held
from aerix_server.runtime.context import AgentContext, Draft
from aerix_server.tools.base import ToolError

SCRATCHPAD: Final = "scratchpad"
_FIXED: Final = frozenset({"system", "instructions", SCRATCHPAD})
_Op = Literal["status", "drop", "summarize", "pin", "unpin", "note"]


class ModelContext:
    """A context port over one agent's context. Methods raise ToolError for ids that are not there or must stay."""

    def __init__(self, agent: str, context: AgentContext, send: Callable[[Event], None]) -> None:
        self._agent = agent
        self._context = context
        self._send = send

    async def status(self) -> str:
        rows = [
            f"{item.id}  {item.label}  {item.tokens} tokens{'  pinned' if item.pinned else ''}"
            for item in self._context.segments
        ]
        self._log("status", None, None, self._context.tokens)
        return "\n".join([self._total(), *rows])

    async def drop(self, ids: list[str]) -> str:
        before = self._context.tokens
        found = self._changeable(ids, "dropped")
        await self._context.remove([item.id for item in found])
        self._log("drop", ids, None, before)
        return self._changed(f"dropped {_count(found)}", before)

    async def summarize(self, ids: list[str], text: str) -> str:
        before = self._context.tokens
        found = self._changeable(ids, "summarized")
        if not text.strip():
            raise ToolError("summarize needs the text of the summary")
        await self._context.append(Draft("user", "summary", f"[summary of {', '.join(ids)}]\n{text}", pinned=True))
        await self._context.remove([item.id for item in found])
        self._log("summarize", ids, text, before)
        return self._changed(f"replaced {_count(found)} by one pinned summary", before)

    async def pin(self, ids: list[str], pinned: bool) -> str:
        found = self._found(ids)
        await self._context.pin([item.id for item in found], pinned)
        self._log("pin" if pinned else "unpin", ids, None, self._context.tokens)
        return f"{'pinned' if pinned else 'unpinned'} {_count(found)}"

    async def note(self, text: str) -> str:
        before = self._context.tokens
        if not text.strip():
            raise ToolError("note needs a text")
        pad = next((item for item in self._context.segments if item.label == SCRATCHPAD), None)
        if pad is None:
            await self._context.append(Draft("user", SCRATCHPAD, f"[scratchpad]\n{text}", pinned=True))
        else:
            await self._context.replace({pad.id: f"{pad.text}\n{text}"})
        self._log("note", None, text, before)
        return "noted"

    def _found(self, ids: Sequence[str]) -> list[Held]:
        if not ids:
            raise ToolError("name at least one segment id; status lists them")
        found = [self._context.find(id_) for id_ in dict.fromkeys(ids)]
        missing = [id_ for id_, item in zip(dict.fromkeys(ids), found, strict=True) if item is None]
        if missing:
            raise ToolError(f"no segment {', '.join(missing)}; status lists the ids")
        return [item for item in found if item is not None]

    def _changeable(self, ids: Sequence[str], verb: str) -> list[Held]:
        found = self._found(ids)
        fixed = [f"{item.id} ({item.label})" for item in found if item.label in _FIXED]
        if fixed:
            raise ToolError(f"{', '.join(fixed)} cannot be {verb}: system, instructions and scratchpad stay")
        return found

    def _total(self) -> str:
        window = self._context.window
        return f"{self._context.tokens} of {window} tokens ({100 * self._context.tokens // max(window, 1)} %)"

    def _changed(self, what: str, before: int) -> str:
        return f"{what}; {before} tokens before, now {self._total()}"

    def _log(self, op: _Op, ids: list[str] | None, text: str | None, before: int) -> None:
        after = self._context.tokens
        self._send(ContextOp(agent=self._agent, op=op, ids=ids, text=text, before=before, after=after))


def _count(items: Sequence[Held]) -> str:
    return f"{len(items)} segment{'' if len(items) == 1 else 's'}"
