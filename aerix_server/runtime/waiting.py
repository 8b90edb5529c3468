"""What a generation waits for, as an event. Pure."""

from __future__ import annotations

from aerix_server.pool.port import Waiting
from aerix_server.protocol.events import ProgressEvent


def waiting_event(item: Waiting, *, agent: str | None = None, what: str | None = None) -> ProgressEvent:
    """`what` names the generation where the phase does not; the pool's estimate of the wait stands behind it."""
    parts = [what] if what else []
    if item.phase == "queue" and item.seconds:
        parts.append(f"about {item.seconds:.0f} s")
    return ProgressEvent(
        agent=agent, phase=item.phase, done=item.done, total=item.total, detail=", ".join(parts) or None
    )
