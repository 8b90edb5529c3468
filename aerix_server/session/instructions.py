"""The instruction files of a project: `AGENTS.md` and `CLAUDE.md` at the repository's top and in the working folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NAMES = ("AGENTS.md", "CLAUDE.md")
FILE_BYTES = 24_000


@dataclass(frozen=True)
class Instructions:
    """`text` holds each file under a line that names it; `notices` are lines for the user."""

    text: str
    notices: tuple[str, ...]


def read_instructions(top: Path | None, cwd: Path) -> Instructions:
    """Outermost first. A file that is the same as an earlier one (a link, or a copy) is read once. Blocking."""
    parts: list[str] = []
    notices: list[str] = []
    seen: set[str] = set()
    folders = dict.fromkeys([top or cwd, cwd])
    for path in (folder / name for folder in folders for name in NAMES):
        text, notice = _read(path)
        if notice:
            notices.append(notice)
        if text and text not in seen:
            seen.add(text)
            parts.append(f"From {path}:\n\n{text}")
    return Instructions("\n\n".join(parts), tuple(notices))


def _read(path: Path) -> tuple[str, str | None]:
    """The text, empty when there is none, and what the user should know of it."""
    try:
        if not path.is_file():
            return "", None
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
    except OSError as error:
        return "", f"{path} cannot be read: {error.strerror}"
    notice = None
    if len(data) > FILE_BYTES:
        data = data[:FILE_BYTES]
        notice = f"{path} is longer than {FILE_BYTES} bytes; only its beginning is given to the model"
    text = data.decode("utf-8-sig", "replace").rstrip("�" if notice else "").strip()
    if notice is None and "�" in text:
        notice = f"{path} is not all UTF-8; what is not is shown to the model as �"
    return text, notice
