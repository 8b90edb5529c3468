"""The diff of a request as text for stdout. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aerix_cli.texts import one_line, visible

_RESET: Final = "\x1b[0m"
_STYLES: Final = (
    (("diff ", "index ", "--- ", "+++ "), "\x1b[1m"),
    (("@@",), "\x1b[36m"),
    (("+",), "\x1b[32m"),
    (("-",), "\x1b[31m"),
)


def diff_text(unified: str, untracked: Iterable[str], color: bool) -> str:
    """The unified diff and the `untracked: <path>` lines, ended by a line end; "" when there is nothing."""
    lines = visible(unified).removesuffix("\n").split("\n") if unified else []
    if color:
        lines = [_styled(line) for line in lines]
    lines += [f"untracked: {one_line(path, 4096)}" for path in untracked]
    return "\n".join(lines) + "\n" if lines else ""


def _styled(line: str) -> str:
    style = next((style for starts, style in _STYLES if line.startswith(starts)), "")
    return f"{style}{line}{_RESET}" if style else line
