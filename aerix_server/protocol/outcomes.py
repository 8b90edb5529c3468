"""How a request, an agent or a turn can end, and the exit code each end has."""

from __future__ import annotations

from typing import Final, Literal

OutcomeKind = Literal["final", "budget", "failed", "killed", "cancelled", "refused"]

EXIT_CODES: Final[dict[OutcomeKind, int]] = {
    "final": 0,
    "failed": 1,
    "killed": 1,
    "budget": 2,
    "refused": 3,
    "cancelled": 130,
}
EXIT_POOL: Final = 4
EXIT_USAGE: Final = 64
EXIT_READER_GONE: Final = 141

ErrorName = Literal[
    "pool_unavailable",
    "model_refused",
    "session_not_found",
    "session_locked",
    "request_running",
    "not_found",
    "conflict",
    "stale_version",
    "already_decided",
    "unsupported",
]


class AerixError(Exception):
    """An error the caller is told by name.

    `code` is one of ErrorName (the wire's `data.code`), the message a sentence for the user, `hint` what to do.
    """

    def __init__(self, code: ErrorName, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code: ErrorName = code
        self.message = message
        self.hint = hint


class BadParams(ValueError):
    """A value the caller gave cannot be used: `field` names it, the message says why. On the wire -32602."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message
