"""Where sessions lie: `$XDG_DATA_HOME/aerix/sessions/<project key>/<id>.*`, readable by their owner only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ulid import ULID

from aerix_server.protocol.folders import aerix_folder

_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


def data_home(env: Mapping[str, str]) -> Path:
    """`$XDG_DATA_HOME/aerix`."""
    return aerix_folder(env, "DATA")


def sessions_folder(env: Mapping[str, str]) -> Path:
    return data_home(env) / "sessions"


def checkpoints_folder(env: Mapping[str, str]) -> Path:
    """Where snapshots keep what the user's repositories do not hold."""
    return data_home(env) / "checkpoints"


def private_folder(path: Path) -> Path:
    """Make the folder and those above it that are missing, for the owner only. Raises OSError."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    return path


def new_id() -> str:
    """A ULID in lower case: sortable by time, 80 bits of randomness."""
    return str(ULID()).lower()


@dataclass(frozen=True)
class SessionFiles:
    """The files of one session."""

    folder: Path
    id: str

    @property
    def log(self) -> Path:
        return self.folder / f"{self.id}.jsonl"

    @property
    def lock(self) -> Path:
        return self.folder / f"{self.id}.lock"

    @property
    def spool(self) -> Path:
        return self.folder / f"{self.id}.spool"

    def diff(self, request: str) -> Path:
        """Where the diff of an ended request is kept."""
        return self.folder / f"{self.id}.diffs" / f"{request}.json"


def find_session(root: Path, session: str) -> SessionFiles | None:
    """The files of a session of any project, or None. Blocking."""
    if not _ID.fullmatch(session):
        return None
    found = next(root.glob(f"*/{session}.jsonl"), None)
    return SessionFiles(found.parent, session) if found else None
