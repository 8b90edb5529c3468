"""Model references as the server names them: what `auto` means, and a member's name from its reference. Pure."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

EMBEDDED: Final = "smollm2-instruct"
EMBEDDED_NOTE: Final = (
    f"no model is set, so the embedded {EMBEDDED} answers: it shows that everything works and takes small questions, "
    "but it is too small to edit code reliably. Set main.model or give --model for real work."
)
MAIN: Final = "main"


def wanted_model(setting: str) -> tuple[str, str | None]:
    """The reference to load, and the line for the user where the choice was made for him."""
    return (EMBEDDED, EMBEDDED_NOTE) if setting == "auto" else (setting, None)


def absolute(reference: str, base: Path) -> str:
    """A reference to a file with its whole path: the pool runs in another folder than the user. Others stay."""
    if ":" in reference or not reference.endswith(".gguf"):
        return reference
    return str((base / Path(reference).expanduser()).absolute())


def slug(reference: str) -> str:
    """A member's name for a reference: readable, and different for different references."""
    stem = reference.rsplit("/", 1)[-1].removesuffix(".gguf")
    readable = re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-.") or "model"
    if readable == reference:
        return readable
    return f"{readable[:48]}-{hashlib.sha256(reference.encode()).hexdigest()[:6]}"


def same_model(loaded: str, wanted: str) -> bool:
    """Whether a member's model is the wanted one."""
    return loaded == wanted or (loaded.endswith(".gguf") and wanted.endswith(".gguf") and Path(loaded) == Path(wanted))
