"""The log's time: RFC 3339, UTC, milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """Such as 2026-01-31T09:30:00.125Z."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
