"""Going on with an earlier root: what its last request left open. Pure."""

from __future__ import annotations

from aerix_server.protocol.events import Call
from aerix_server.runtime.ports import RootState, SegmentRecord
from aerix_server.runtime.turn import Turn, parse_turn

INTERRUPTED = "error: interrupted"


def unanswered(state: RootState) -> tuple[Call, ...]:
    """The calls of the last turn that have no result: their request was cancelled or its process died."""
    last = next((at for at in reversed(range(len(state.segments))) if state.segments[at].role == "assistant"), None)
    if last is None:
        return ()
    made = _calls(state.segments[last], 0)
    # The last turn's calls are the highest numbered ones.
    numbered = _calls(state.segments[last], max(state.calls - len(made), 0))
    answered = {segment.label.split(" ")[-1] for segment in state.segments[last + 1 :]}
    return tuple(call for call in numbered if call.id not in answered)


def _calls(segment: SegmentRecord, before: int) -> tuple[Call, ...]:
    parsed = parse_turn(segment.text, before, text_final=False)
    return parsed.calls if isinstance(parsed, Turn) else ()
