"""What a pool is started with, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from caldrix.engine.api import ServingFlags
from caldrix.protocol.errors import CaldrixError
from caldrix.protocol.messages import CONTEXT_GRACE_S

EXIT_FAILED = 1
EXIT_LOCK_HELD = 3
IDLE_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class LoadSpec:
    """One `--load REF[=NAME]`; without a name the member is called by a slug of its reference."""

    reference: str
    member: str | None = None


@dataclass(frozen=True)
class PoolOptions:
    """`idle_timeout_s` 0 means never. `log` None is stderr; `log_text` adds prompts and outputs to the log."""

    socket: Path
    loads: tuple[LoadSpec, ...] = ()
    flags: ServingFlags = field(default_factory=ServingFlags)
    idle_timeout_s: float = IDLE_TIMEOUT_S
    log: Path | None = None
    log_text: bool = False
    context_grace_s: float = CONTEXT_GRACE_S


class CannotStart(CaldrixError):
    """The pool did not come up. `exit_code` is EXIT_LOCK_HELD where another pool serves the socket."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code
