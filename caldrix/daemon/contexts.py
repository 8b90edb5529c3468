"""The contexts of a pool, each with its member's own counts.

They belong to a client_id and outlive its last connection by a grace, so that a client which reconnects finds them and
one that crashed leaks nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from caldrix.daemon.edits import Segments, StoredSegment, apply_edits, cut_after, refuse_taken, store
from caldrix.daemon.members import Members, Resident
from caldrix.engine.jobs import Rendered
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import ContextInfo, Edit, Segment, SegmentInfo

MAX_HELD_BYTES = 512 << 20
"""What the contexts of all clients may hold together: some hundred whole windows of 100,000 tokens."""
SEGMENT_BYTES = 512
"""What a segment costs beside its text."""
ID_BYTES = 40
"""A token id as a Python integer, and its place in a tuple: of long texts by far the greater part."""
LARGE_BYTES = 1 << 20
"""Prompts from here on are rendered one at a time, so that they never take every thread."""


@dataclass(eq=False)
class Context:
    """`segments` and `rendered` belong together. `reserved` are the ids of outputs under way; `lock` orders changes."""

    id: str
    client_id: str
    member: str
    window: int
    segments: Segments
    rendered: Rendered
    held_bytes: int
    version: int = 1
    reserved: set[str] = field(default_factory=set)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def info(self, request_id: int, *, text: bool = False) -> ContextInfo:
        counted = zip(self.segments, self.rendered.counts, strict=True)
        segments = [describe(segment, tokens, text=text) for segment, tokens in counted]
        return ContextInfo(
            id=request_id,
            context=self.id,
            member=self.member,
            version=self.version,
            window=self.window,
            tokens=len(self.rendered.ids),
            segments=segments,
        )

    def reserve(self, name: str) -> None:
        """Keep the id for an output; the caller frees it from `reserved`. Raises Refused("duplicate_segment")."""
        refuse_taken(name, {segment.id for segment in self.segments}, self.reserved)
        self.reserved.add(name)


def describe(segment: StoredSegment, tokens: int, *, text: bool = False) -> SegmentInfo:
    """The segment as the protocol shows it."""
    return SegmentInfo(
        id=segment.id, role=segment.role, pinned=segment.pinned, tokens=tokens, text=segment.text if text else None
    )


class Contexts:
    """Every method that names a context raises Refused("unknown_context") for one of another client_id, too."""

    def __init__(self, members: Members, grace_s: float) -> None:
        self._members = members
        self._grace_s = grace_s
        self._contexts: dict[str, Context] = {}
        self._connections: dict[str, int] = {}
        self._expiries: dict[str, asyncio.TimerHandle] = {}
        self._arriving_bytes = 0
        self._large = asyncio.Semaphore(1)

    def __len__(self) -> int:
        return len(self._contexts)

    def get(self, client_id: str, name: str) -> Context:
        context = self._contexts.get(name)
        if context is None or context.client_id != client_id:
            raise Refused("unknown_context", f"there is no context {name!r} of this client; create it again.")
        return context

    def holds(self, context: Context) -> bool:
        """Whether the context was not dropped meanwhile."""
        return self._contexts.get(context.id) is context

    async def create(self, client_id: str, member: str, segments: Sequence[Segment]) -> Context:
        """Raises Refused: unknown_member, busy, duplicate_segment, bad_request."""
        return await self._add(client_id, self._members.get(member), store(segments))

    async def fork(self, client_id: str, name: str, until: str | None) -> Context:
        """A new context of the segments up to and with `until`. Raises Refused: unknown_segment."""
        source = self.get(client_id, name)
        return await self._add(client_id, self._members.get(source.member), cut_after(source.segments, until))

    async def edit(self, client_id: str, name: str, edits: Sequence[Edit], version: int | None) -> Context:
        """Apply all edits or none. Raises Refused: stale_version, unknown_segment, duplicate_segment, bad_request."""
        context = self.get(client_id, name)
        async with context.lock:
            if version is not None and version != context.version:
                raise Refused(
                    "stale_version",
                    f"the context is at version {context.version}, and the edit was made for {version}; read it again.",
                    {"version": context.version},
                )
            if edits:
                await self._change(context, apply_edits(context.segments, edits, context.reserved))
        return context

    async def append_output(self, context: Context, output: StoredSegment) -> SegmentInfo | None:
        """Append a generated segment at the end; None when the context was dropped meanwhile."""
        async with context.lock:
            if not self.holds(context):
                return None
            await self._change(context, (*context.segments, output))
            return describe(output, context.rendered.counts[-1])

    def drop(self, client_id: str, name: str) -> None:
        del self._contexts[self.get(client_id, name).id]

    def drop_member(self, member: str) -> None:
        """Drop every context of a member that goes away."""
        self._keep(lambda context: context.member != member)

    def arrive(self, client_id: str) -> None:
        """A connection of this client opened."""
        self._connections[client_id] = self._connections.get(client_id, 0) + 1
        if expiry := self._expiries.pop(client_id, None):
            expiry.cancel()

    def leave(self, client_id: str) -> None:
        """A connection of this client closed; after the last one its contexts have the grace left."""
        self._connections[client_id] -= 1
        if self._connections[client_id] == 0:
            del self._connections[client_id]
            self._expiries[client_id] = asyncio.get_running_loop().call_later(self._grace_s, self._expire, client_id)

    def close(self) -> None:
        """Stop the timers."""
        for expiry in self._expiries.values():
            expiry.cancel()
        self._expiries.clear()

    def _expire(self, client_id: str) -> None:
        self._expiries.pop(client_id, None)
        self._keep(lambda context: context.client_id != client_id)

    def _keep(self, wanted: Callable[[Context], bool]) -> None:
        self._contexts = {name: context for name, context in self._contexts.items() if wanted(context)}

    async def _add(self, client_id: str, resident: Resident, segments: Segments) -> Context:
        size = _size(segments)
        with resident.in_use(), self._room(size):
            rendered = await self._render(resident, segments)
            ids = _ids_size(rendered)
            with self._room(ids):
                context = Context(
                    f"x{secrets.token_hex(8)}",
                    client_id,
                    resident.name,
                    resident.window,
                    segments,
                    rendered,
                    size + ids,
                )
        self._contexts[context.id] = context
        return context

    async def _change(self, context: Context, segments: Segments) -> None:
        resident = self._members.get(context.member)
        size = _size(segments)
        with resident.in_use(), self._room(size - _size(context.segments)):
            rendered = await self._render(resident, segments)
            ids = _ids_size(rendered)
            with self._room(ids - _ids_size(context.rendered)):
                context.segments, context.rendered = segments, rendered
        context.held_bytes = size + ids
        context.version += 1

    @contextlib.contextmanager
    def _room(self, grows: int) -> Iterator[None]:
        """Room for what a context grows by. Raises Refused("memory") when all of them would hold too much."""
        held = sum(context.held_bytes for context in self._contexts.values()) + self._arriving_bytes
        if grows > 0 and held + grows > MAX_HELD_BYTES:
            raise Refused(
                "memory",
                f"the contexts of this pool hold {held} bytes, and {grows} more exceed the limit of {MAX_HELD_BYTES}; "
                "drop contexts that are no longer needed.",
                {"held_bytes": held, "needed_bytes": grows, "limit_bytes": MAX_HELD_BYTES},
            )
        self._arriving_bytes += grows
        try:
            yield
        finally:
            self._arriving_bytes -= grows

    async def _render(self, resident: Resident, segments: Segments) -> Rendered:
        parts = [segment.part() for segment in segments]
        lane = self._large if _size(segments) >= LARGE_BYTES else contextlib.nullcontext()
        async with lane:
            return await asyncio.to_thread(resident.engine.render, parts)


def _size(segments: Segments) -> int:
    return sum(SEGMENT_BYTES + len(segment.text) for segment in segments)


def _ids_size(rendered: Rendered) -> int:
    return ID_BYTES * len(rendered.ids)
