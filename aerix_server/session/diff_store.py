"""The diff of an ended request, kept beside the log: later edits of the user do not change what the request did."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from pydantic import ValidationError

from aerix_server.protocol.messages import DiffResult
from aerix_server.session.folders import private_folder


def save_diff(path: Path, diff: DiffResult) -> None:
    """Blocking. Raises OSError."""
    private_folder(path.parent)
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        beside.write_text(json.dumps(diff.model_dump()), encoding="ascii")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def load_diff(path: Path) -> DiffResult | None:
    """None when none was kept, or it cannot be read. Blocking."""
    try:
        return DiffResult.model_validate(json.loads(path.read_bytes()))
    except (OSError, ValueError, ValidationError, RecursionError):
        return None
