"""Where a user's files lie, for the server and its clients alike: the XDG base directories, on every platform."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_DEFAULTS: Final = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state"}


def aerix_folder(env: Mapping[str, str], kind: str) -> Path:
    """`$XDG_<kind>_HOME/aerix`; `kind` is CONFIG, DATA or STATE. A relative XDG folder does not count."""
    home = env.get(f"XDG_{kind}_HOME", "")
    base = Path(home) if home.startswith("/") else Path(env.get("HOME") or Path.home()) / _DEFAULTS[kind]
    return base / "aerix"


def server_log(env: Mapping[str, str]) -> Path:
    """Where the server logs."""
    return aerix_folder(env, "STATE") / "server.log"
