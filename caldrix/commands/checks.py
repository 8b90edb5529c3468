"""What a check found, and how a report of checks reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """`found` is a sentence with the numbers; `fix`, a command or a sentence, stands with every warning and failure.

    `facts` are the same numbers for a program.
    """

    name: str
    status: Status
    found: str
    fix: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def ok(name: str, found: str, **facts: Any) -> Check:
    return Check(name, "ok", found, None, facts)


def warn(name: str, found: str, fix: str, **facts: Any) -> Check:
    return Check(name, "warn", found, fix, facts)


def fail(name: str, found: str, fix: str, **facts: Any) -> Check:
    return Check(name, "fail", found, fix, facts)


def as_json(checks: Iterable[Check], reference: str | None) -> dict[str, Any]:
    """The whole report as one object. Pure."""
    listed = list(checks)
    return {
        "ok": not any(check.status == "fail" for check in listed),
        "reference": reference,
        "checks": [{key: value for key, value in asdict(check).items() if value not in (None, {})} for check in listed],
    }
