"""The files an agent has read, as they are now: those whose edits can be held to what stands in them. Blocking."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from aerix_server.config.bounds import UNIQUE_TOTAL_CHARS
from aerix_server.runtime.turn_grammar import SeenFile
from aerix_server.tools.base import ToolContext
from aerix_server.tools.endings import plain
from aerix_server.tools.names import display
from aerix_server.tools.text import NotText, decode

_BYTES_OF_CHARACTER = 4


def seen_files(paths: Iterable[Path], ctx: ToolContext) -> list[SeenFile]:
    """Those of `paths` (absolute, links followed) that an edit can change, at most UNIQUE_TOTAL_CHARS of them.

    The last come first, and one that is too long for what is left is passed over.
    """
    found, left = list[SeenFile](), UNIQUE_TOTAL_CHARS
    for path in reversed(list(paths)):
        text = _text(path, left, ctx) if path.is_relative_to(ctx.cwd) else None
        if text and len(text) <= left:
            found.append(SeenFile(display(path, ctx.cwd), text))
            left -= len(text)
    return found


def _text(path: Path, most: int, ctx: ToolContext) -> str | None:
    """The text as an edit matches it; None for what an edit would refuse, or what cannot be written as one string."""
    if ctx.overlay(path) is not None:
        return None
    try:
        seen = os.stat(path)  # noqa: PTH116
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > most * _BYTES_OF_CHARACTER:
            return None
        file = decode(path.read_bytes())
    except (OSError, NotText):
        return None
    # An edit drops a byte-order mark that an old begins with, and what is no UTF-8 is shown as something else.
    return None if file.bad_byte is not None or "\ufeff" in file.text else plain(file.text).text
