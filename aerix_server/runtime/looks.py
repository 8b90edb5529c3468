"""A call that only looks, made again: where it gives what already stands in the context, a pointer there is enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from aerix_server.protocol.events import Call
from aerix_server.runtime.caps import speakable
from aerix_server.runtime.compact import Held

UNCHANGED: Final = "nothing has changed since. Use it; do something else next."
_COMPARED_CHARS: Final = 120


@dataclass
class Looks:
    """The results of calls that only look, by canonical call: which call gave it last, and what."""

    _given: dict[str, tuple[str, str]] = field(default_factory=dict)

    def again(self, call: Call, key: str, text: str, segments: Sequence[Held]) -> str | None:
        """What to show in place of a result that the model has before it already; None for one that is new."""
        before = self._given.get(key)
        if before is not None and before[1] == text and _stands(before[0], text, segments):
            pointer = f"the same as {before[0]}, above: {UNCHANGED}"
            return pointer if len(pointer) < len(text) else text
        self._given[key] = (f"{call.tool} {call.id}", text)
        return None

    def stands(self, tool: str, segments: Sequence[Held]) -> bool:
        """Whether a result of the tool is in the context still."""
        return any(
            label.split(" ")[0] == tool and _stands(label, text, segments) for label, text in self._given.values()
        )


def _stands(label: str, text: str, segments: Sequence[Held]) -> bool:
    """Whether the result is still in the context, whole or cut, and not compacted away."""
    shown = speakable(text)[:_COMPARED_CHARS]
    return any(segment.label == label and shown in segment.text for segment in segments)
