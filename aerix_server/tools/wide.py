"""UTF-16 among the files that a search found something in: ripgrep shows a broken one in part, read refuses it."""

from __future__ import annotations

from pathlib import Path

from aerix_server.tools.ripgrep import Search
from aerix_server.tools.text import NotText, decode, detect_encoding


def drop_broken(root: Path, given: set[str], search: Search) -> None:
    """Count files of broken UTF-16 as binary, as read does; ripgrep shows them in part. `given` are no files."""
    for name in {match.name for match in search.matches} - given:
        try:
            with (root / name).open("rb") as file:
                wide = detect_encoding(file.read(4))[1] != "utf-8"
                if wide and file.seek(0) == 0:
                    decode(file.read())
        except OSError:
            continue
        except NotText:
            search.drop_binary(name)
