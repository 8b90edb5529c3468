"""A context's segments, and edits of them as a pure function: all of them, or none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from caldrix.engine.jobs import Part
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import MAX_SEGMENTS, AppendEdit, Edit, PinEdit, RemoveEdit, ReplaceEdit, Role, Segment


@dataclass(frozen=True)
class StoredSegment:
    """A segment as kept. `ids` are the token ids its text was generated with, None where a tokenizer decides."""

    id: str
    role: Role
    text: str
    pinned: bool
    ids: tuple[int, ...] | None = None

    def part(self) -> Part:
        return Part(self.role, self.text, self.ids)


Segments = tuple[StoredSegment, ...]


def store(segments: Sequence[Segment]) -> Segments:
    """The segments of a new context. Raises Refused("duplicate_segment")."""
    return apply_edits((), [AppendEdit(op="append", segment=segment) for segment in segments])


def apply_edits(segments: Segments, edits: Sequence[Edit], reserved: Collection[str] = ()) -> Segments:
    """`segments` after all `edits`, in order. `reserved` ids belong to outputs that are being generated.

    Raises Refused: unknown_segment, duplicate_segment, bad_request for too many segments.
    """
    by_id = {segment.id: segment for segment in segments}
    for edit in edits:
        match edit:
            case AppendEdit(segment=segment):
                refuse_taken(segment.id, by_id, reserved)
                by_id[segment.id] = StoredSegment(segment.id, segment.role, segment.text, segment.pinned)
            case ReplaceEdit(id=name, text=text):
                by_id[name] = _with_text(_known(by_id, name), text)
            case RemoveEdit(id=name):
                del by_id[_known(by_id, name).id]
            case PinEdit(id=name, pinned=pinned):
                by_id[name] = replace(_known(by_id, name), pinned=pinned)
    if len(by_id) > MAX_SEGMENTS:
        raise Refused(
            "bad_request", f"the context would have {len(by_id)} segments; at most {MAX_SEGMENTS} fit: join some."
        )
    return tuple(by_id.values())


def cut_after(segments: Segments, until: str | None) -> Segments:
    """The segments up to and with `until`; all of them for None. Raises Refused("unknown_segment")."""
    if until is None:
        return segments
    for index, segment in enumerate(segments):
        if segment.id == until:
            return segments[: index + 1]
    raise _unknown(until)


def refuse_taken(name: str, taken: Collection[str], reserved: Collection[str]) -> None:
    """Raises Refused("duplicate_segment") when a segment of this id stands in the context, or is being generated."""
    if name in taken:
        raise Refused(
            "duplicate_segment", f"the context already has a segment {name!r}; ids are unique in their context."
        )
    if name in reserved:
        raise Refused("duplicate_segment", f"the segment {name!r} is being generated; ids are unique in their context.")


def _with_text(segment: StoredSegment, text: str) -> StoredSegment:
    return segment if text == segment.text else replace(segment, text=text, ids=None)


def _known(by_id: dict[str, StoredSegment], name: str) -> StoredSegment:
    if name not in by_id:
        raise _unknown(name)
    return by_id[name]


def _unknown(name: str) -> Refused:
    return Refused("unknown_segment", f"the context has no segment {name!r}; nothing was changed.")
