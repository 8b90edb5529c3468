"""The mirror of one pool context: every change is made in the pool first, then logged with the pool's own counts."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from aerix_server.pool.port import (
    ContextState,
    Edit,
    Generated,
    GenerationItem,
    GenerationOptions,
    NewSegment,
    Pool,
)
from aerix_server.protocol.events import Event, Role, SegmentEvent
from aerix_server.runtime.caps import speakable
from aerix_server.runtime.compact import Held
from aerix_server.runtime.lease import Lease
from aerix_server.runtime.ports import Ended, SegmentRecord
from aerix_server.runtime.spool import Spool

LOG_TEXT_CHARS: Final = 256 * 1024
"""A longer text goes to the spool and the log names it."""


@dataclass(frozen=True)
class Draft:
    """A segment to be appended; the context gives its id."""

    role: Role
    label: str
    text: str
    pinned: bool = False


@dataclass
class Numbers:
    """The highest numbers given so far over a session: segments, turns, calls."""

    segments: int = 0
    turns: int = 0
    calls: int = 0

    def segment(self) -> str:
        self.segments += 1
        return f"s{self.segments}"


class AgentContext:
    """One agent's context. Methods raise PoolFailed; `segments` and `tokens` are as the pool last counted them."""

    def __init__(self, pool: Pool, agent: str, send: Callable[[Event], None], spool: Spool, numbers: Numbers) -> None:
        self._pool = pool
        self._agent = agent
        self._send = send
        self._spool = spool
        self._numbers = numbers
        self._lease = Lease(pool)
        self._state: ContextState | None = None
        self._held: dict[str, Held] = {}

    async def create(self, member: str, old: Iterable[SegmentRecord], new: Sequence[Draft]) -> None:
        """Make the context in the pool: `old` segments stand in the log already, `new` ones are logged now."""
        kept = [Held(item.id, item.role, item.label, item.text, item.pinned, 0) for item in old]
        fresh = [self._draft(draft) for draft in new]
        self._state = await self._lease.take(self._pool.create(member, [_new(item) for item in [*kept, *fresh]]))
        self._held = {item.id: item for item in [*kept, *fresh]}
        self._recount()
        for item in fresh:
            self._log("append", self._held[item.id])

    async def fork(self, caller: AgentContext, new: Sequence[Draft]) -> None:
        """Make the context from the system segments that lead the caller's, and `new` ones; all are logged as this
        agent's. The rows of the shared part are the caller's, so nothing of it is computed again."""
        shared = leading(caller.segments)
        self._state = await self._lease.take(self._pool.fork(caller._now.context, shared[-1].id))
        self._numbers.segments = caller._numbers.segments
        fresh = [self._draft(draft) for draft in new]
        self._state = await self._edit(*(Edit("append", segment=_new(item)) for item in fresh))
        self._held = {item.id: item for item in [*shared, *fresh]}
        self._recount()
        for item in self.segments:
            self._log("append", item)

    async def release(self) -> None:
        """Give the context back to the pool; a second time does nothing. The mirror stays readable."""
        await self._lease.give_back()

    @property
    def window(self) -> int:
        return self._now.window

    @property
    def tokens(self) -> int:
        """Of the whole prompt, generation header included."""
        return self._now.tokens

    @property
    def segments(self) -> tuple[Held, ...]:
        return tuple(self._held.values())

    def find(self, id: str) -> Held | None:  # noqa: A002 - the field's own name
        return self._held.get(id)

    async def append(self, draft: Draft) -> Held:
        """Append a segment and log it."""
        item = self._draft(draft)
        return self._adopt(item, await self._edit(Edit("append", segment=_new(item))))

    async def append_within(self, draft: Draft, reserve: int, before_log: Callable[[], None]) -> Held | None:
        """Append a segment if `reserve` tokens stay free after it, else leave the context as it was and give None.

        `before_log` runs once the segment is in, before its line.
        """
        item = self._draft(draft)
        state = await self._edit(Edit("append", segment=_new(item)))
        if state.tokens + reserve < state.window:
            before_log()
            return self._adopt(item, state)
        self._state = await self._edit(Edit("remove", id=item.id))
        return None

    async def replace(self, texts: Mapping[str, str]) -> None:
        """Replace the texts of segments, id → text, all or none."""
        spoken = {id_: speakable(text) for id_, text in texts.items()}
        self._state = await self._edit(*(Edit("replace", id=id_, text=text) for id_, text in spoken.items()))
        self._held.update({id_: replace(self._held[id_], text=text) for id_, text in spoken.items()})
        self._recount()
        for id_ in spoken:
            self._log("replace", self._held[id_])

    async def remove(self, ids: Sequence[str]) -> None:
        """Remove segments, all or none."""
        self._state = await self._edit(*(Edit("remove", id=id_) for id_ in ids))
        gone = [self._held.pop(id_) for id_ in ids]
        self._recount()
        for item in gone:
            self._log("remove", item)

    async def pin(self, ids: Sequence[str], pinned: bool) -> None:
        """Set the pinned flags. The log has it as the caller's context.op event."""
        self._state = await self._edit(*(Edit("pin", id=id_, pinned=pinned) for id_ in ids))
        self._held.update({id_: replace(self._held[id_], pinned=pinned) for id_ in ids})
        self._recount()

    def generate(self, options: GenerationOptions) -> AsyncGenerator[GenerationItem, None]:
        """Items until one Generated; then call `keep` or `forget` for what it appended."""
        return self._pool.generate(self._now.context, options)

    async def keep(self, generated: Generated, label: str, before_log: Callable[[], None]) -> None:
        """Take over the segment a generation appended; `before_log` runs after the pool's answer, before its line."""
        state = await self._pool.show(self._now.context)
        before_log()
        if generated.appended is not None:
            made = generated.appended
            self._adopt(Held(made.id, made.role, label, generated.text, made.pinned, made.tokens), state)

    async def forget(self, generated: Generated) -> None:
        """Take back the segment a generation appended, if it did. Nothing of it reaches the log."""
        if generated.appended is not None:
            self._state = await self._edit(Edit("remove", id=generated.appended.id))

    def next_id(self) -> str:
        return self._numbers.segment()

    @property
    def _now(self) -> ContextState:
        assert self._state is not None, "create comes first"
        return self._state

    def _draft(self, draft: Draft) -> Held:
        return Held(self._numbers.segment(), draft.role, draft.label, speakable(draft.text), draft.pinned, 0)

    async def _edit(self, *edits: Edit) -> ContextState:
        return await self._pool.edit(self._now.context, edits)

    def _adopt(self, item: Held, state: ContextState) -> Held:
        self._state = state
        self._held[item.id] = item
        self._recount()
        self._log("append", self._held[item.id])
        return self._held[item.id]

    def _recount(self) -> None:
        for counted in self._now.segments:
            if counted.id in self._held:
                self._held[counted.id] = replace(self._held[counted.id], tokens=counted.tokens)

    def _log(self, op: Literal["append", "replace", "remove"], item: Held) -> None:
        told = op != "remove"
        long = told and len(item.text) > LOG_TEXT_CHARS
        self._send(
            SegmentEvent(
                agent=self._agent,
                context=self._agent,
                op=op,
                id=item.id,
                role=item.role,
                label=item.label,
                text=item.text if told and not long else None,
                text_ref=self._spooled(item.text) if long else None,
                tokens=item.tokens,
                pinned=item.pinned,
            )
        )

    def _spooled(self, text: str) -> str:
        """The name of a new spool file that holds the text. Raises Ended: the log may not name what is not there."""
        try:
            return self._spool.keep_now(text).name
        except OSError as error:
            raise Ended("failed", f"the session log could not be written: {error}") from error


def leading(segments: Sequence[Held]) -> tuple[Held, ...]:
    """The segments that every agent's context begins with: the system's and the instructions'."""
    return tuple(itertools.takewhile(lambda segment: segment.role == "system", segments))


def _new(item: Held) -> NewSegment:
    return NewSegment(item.id, item.role, item.text, item.pinned)
