"""A result on its way into the context: capped, fitted to the room that is left, the whole of it in the spool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from aerix_server.config.bounds import BYTES_PER_TOKEN
from aerix_server.protocol.events import Call, MessageEvent, ToolResult
from aerix_server.runtime import caps
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.caps import byte_length, speakable
from aerix_server.runtime.context import Draft
from aerix_server.runtime.room import compact_context
from aerix_server.tools.base import Output

OVERHEAD_TOKENS: Final = 64
"""Kept free beside a fitted result for its head, its pointer and the template."""
LEAST_BYTES: Final = 256
"""A longer result cut to less than this tells nothing."""


@dataclass(frozen=True)
class Result:
    """What a call gave. `failed`: the text is an error or a refusal."""

    output: Output
    failed: bool
    ms: int

    def with_notes(self, notes: Sequence[str]) -> Result:
        """The same with lines after its text."""
        return replace(self, output=replace(self.output, text="\n".join([self.output.text.rstrip("\n"), *notes])))


@dataclass(frozen=True)
class Shown:
    """What the model sees of a result, and the spool file that holds the whole where it was cut."""

    text: str
    spool: Path | None = None


@dataclass(frozen=True)
class _Entry:
    """Where a result goes: its segment's label and head, the tool whose cap it has, and its message in the log."""

    label: str
    head: str
    tool: str
    message: Callable[[Shown], MessageEvent]


async def deliver_call(agent: Agent, call: Call, result: Result) -> None:
    """Append a call's result under its head `[<tool> <id>]`."""

    def message(shown: Shown) -> MessageEvent:
        told = ToolResult(
            call=call.id,
            tool=call.tool,
            text=shown.text,
            error=result.failed,
            ms=result.ms,
            truncated=True if shown.spool else None,
            spool=shown.spool.name if shown.spool else None,
        )
        return MessageEvent(agent=agent.name, turn=agent.numbers.turns, role="tool", result=told)

    name = f"{call.tool} {call.id}"
    await _deliver(agent, _Entry(name, f"[{name}]", call.tool, message), result.output)


async def deliver_job(agent: Agent, job: str, head: str, output: Output) -> None:
    """Append a background command's output under its head `[job jN exited N]`."""

    def message(shown: Shown) -> MessageEvent:
        text = f"{head}\n{shown.text}"
        return MessageEvent(agent=agent.name, turn=agent.numbers.turns, role="user", text=text)

    await _deliver(agent, _Entry(f"job {job}", head, "bash", message), output)


async def _deliver(agent: Agent, entry: _Entry, output: Output) -> None:
    """Append: fitted, else fitted after compacting once, else the pointer alone."""
    output = replace(output, text=speakable(output.text))
    whole = _Whole(agent, output)
    if await _fitted(agent, entry, whole):
        return
    if await compact_context(agent) and await _fitted(agent, entry, whole):
        return
    alone = await whole.cut_to(0)
    # A text shorter than a pointer is its own pointer.
    shown = alone if byte_length(alone.text) < byte_length(output.text) else Shown(output.text)
    agent.send(entry.message(shown))
    await agent.context.append(_segment(entry, shown))


async def _fitted(agent: Agent, entry: _Entry, whole: _Whole) -> bool:
    """Append the result cut to its cap and to the room; False when it does not fit with room for a turn after it."""
    room = agent.context.window - agent.context.tokens - agent.turn_tokens - OVERHEAD_TOKENS
    cap = caps.cap_of(agent.settings.context.tool_caps, entry.tool)
    limit = min(room * BYTES_PER_TOKEN, room * BYTES_PER_TOKEN if cap is None else cap)
    if limit < min(LEAST_BYTES, whole.bytes):
        return False
    shown = await whole.cut_to(limit)
    held = await agent.context.append_within(
        _segment(entry, shown), agent.turn_tokens, lambda: agent.send(entry.message(shown))
    )
    return held is not None


def _segment(entry: _Entry, shown: Shown) -> Draft:
    return Draft("user", entry.label, f"{entry.head}\n{shown.text}")


class _Whole:
    """A result's whole text; it reaches the spool once, and only when it is first cut."""

    def __init__(self, agent: Agent, output: Output) -> None:
        self._agent = agent
        self._text = output.text
        self._file = output.whole
        self._on_disk = output.whole.stat().st_size if output.whole is not None else None

    @property
    def bytes(self) -> int:
        return byte_length(self._text)

    async def cut_to(self, limit: int) -> Shown:
        if self.bytes <= limit and self._file is None:
            return Shown(self._text)
        if self._file is None:
            try:
                self._file = await self._agent.spool.keep(self._text)
            except OSError as error:
                lost = caps.cut(self._text, limit)
                return Shown(
                    f"{lost.kept}\n{lost.status}\n[truncated: {lost.more} more bytes; they could not be kept: {error}]"
                )
        return Shown(caps.cut(self._text, limit, self._on_disk).render(str(self._file)), self._file)
