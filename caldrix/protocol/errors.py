"""Every error of the protocol, in one tree.

CaldrixError
├── BadFrame        the peer sent bytes that are no frame; the connection ends
├── Refused         the pool answered a request with an error code
├── ConnectionLost  the socket closed, or never opened, while an answer was due
└── Overdue         an answer did not come within its bound
"""

from __future__ import annotations

from typing import Any, Literal, get_args

ErrorCode = Literal[
    "version",
    "bad_frame",
    "bad_request",
    "unknown_member",
    "unknown_context",
    "unknown_segment",
    "duplicate_segment",
    "stale_version",
    "window_exceeded",
    "constraint_invalid",
    "constraint_unsupported",
    "memory",
    "model_not_found",
    "model_refused",
    "footprint_unknown",
    "busy",
    "cancelled",
    "shutting_down",
    "engine_failed",
]
ERROR_CODES: tuple[str, ...] = get_args(ErrorCode)


class CaldrixError(Exception):
    """The root of everything this package raises on purpose."""


class BadFrame(CaldrixError):
    """Bytes that break the framing rules; the message says which rule."""


class Refused(CaldrixError):
    """A request was answered with an error.

    `code` is one of ERROR_CODES, `message` a sentence for the user, `detail` further machine-readable facts.
    """

    def __init__(self, code: ErrorCode, message: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.detail = detail


class ConnectionLost(CaldrixError):
    """The pool went away while an answer was due."""


class Overdue(CaldrixError):
    """The pool sent nothing within the bound that the caller gave."""
