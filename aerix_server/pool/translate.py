"""Between caldrix's messages and the port's values. Pure."""

from __future__ import annotations

from aerix_server.pool.port import (
    ContextState,
    CountedSegment,
    Edit,
    Generated,
    GenerationItem,
    MemberState,
    NewSegment,
    Text,
    TokenLogprob,
    Waiting,
)
from aerix_server.protocol.events import OptionScore, Timing, Usage
from caldrix.protocol import messages as m


def member(value: m.Member) -> MemberState:
    return MemberState(
        member=value.member,
        model=value.model,
        lane=value.lane,
        window=value.window,
        constraints=frozenset(value.constraints),
        prefill_tok_s=value.rates.prefill_tok_s,
        decode_tok_s=value.rates.decode_tok_s,
    )


def segment(value: NewSegment) -> m.Segment:
    return m.Segment(id=value.id, role=value.role, text=value.text, pinned=value.pinned)


def context(value: m.ContextInfo) -> ContextState:
    segments = tuple(_counted(item) for item in value.segments)
    return ContextState(value.context, value.member, value.version, value.window, value.tokens, segments)


def edit(value: Edit) -> m.Edit:
    """The message for one change; what its op needs must be there."""
    if value.op == "append":
        assert value.segment is not None
        return m.AppendEdit(op="append", segment=segment(value.segment))
    assert value.id is not None
    if value.op == "remove":
        return m.RemoveEdit(op="remove", id=value.id)
    if value.op == "replace":
        assert value.text is not None
        return m.ReplaceEdit(op="replace", id=value.id, text=value.text)
    assert value.pinned is not None
    return m.PinEdit(op="pin", id=value.id, pinned=value.pinned)


def generation_item(frame: m.Queued | m.Progress | m.Delta | m.Done) -> GenerationItem | None:
    """None for a frame that tells the runtime nothing."""
    match frame:
        case m.Queued():
            return Waiting("queue", frame.position, frame.position, frame.waiting_s)
        case m.Progress():
            return Waiting("prefill", frame.done, frame.total) if frame.phase == "prefill" else None
        case m.Delta():
            return Text(frame.text, frame.tokens)
        case m.Done():
            return _generated(frame)


def _generated(done: m.Done) -> Generated:
    choice = done.choice
    return Generated(
        finish=done.finish,
        text=done.text,
        usage=Usage(**done.usage.model_dump()),
        timing=Timing(**done.timing.model_dump()),
        choice=choice.option if choice else None,
        scores=tuple(OptionScore(**score.model_dump()) for score in choice.scores) if choice else (),
        appended=_counted(done.segment) if done.segment else None,
        version=done.context_version,
        logprobs=tuple(TokenLogprob(token.text, token.logprob, token.forced) for token in done.logprobs or ()),
    )


def _counted(item: m.SegmentInfo) -> CountedSegment:
    return CountedSegment(item.id, item.role, item.pinned, item.tokens)
