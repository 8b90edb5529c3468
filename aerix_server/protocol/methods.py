"""One table: each method's params and result. A handler, a client and the generated types read the same row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aerix_server.protocol import messages as m


@dataclass(frozen=True)
class Method:
    params: type[m.Wire]
    result: type[m.Wire]


PROTOCOL_VERSION: Final = 1

METHODS: Final[dict[str, Method]] = {
    "aerix/session/new": Method(m.SessionNewParams, m.SessionResult),
    "aerix/session/list": Method(m.SessionListParams, m.SessionListResult),
    "aerix/session/attach": Method(m.SessionAttachParams, m.SessionAttachResult),
    "aerix/session/detach": Method(m.SessionDetachParams, m.Empty),
    "aerix/session/transcript": Method(m.SessionTranscriptParams, m.SessionTranscriptResult),
    "aerix/request/start": Method(m.RequestStartParams, m.RequestStartResult),
    "aerix/request/wait": Method(m.RequestRef, m.Outcome),
    "aerix/request/cancel": Method(m.RequestRef, m.RequestCancelResult),
    "aerix/plan/decide": Method(m.PlanDecideParams, m.PlanDecideResult),
    "aerix/diff/get": Method(m.DiffGetParams, m.DiffResult),
    "aerix/pool/status": Method(m.Empty, m.PoolStatusResult),
}

NOTIFICATIONS: Final[dict[str, type[m.Wire] | None]] = {
    "aerix/event": None,  # {session, …} and the fields of one event of `events.Event`
    "aerix/plan/proposed": m.PlanProposed,
    "aerix/plan/decided": m.PlanDecided,
    "aerix/session/changed": m.SessionChanged,
}
