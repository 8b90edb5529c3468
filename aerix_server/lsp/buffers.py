"""The text of open editor buffers that is not on disk yet, by path. What `read` and `grep` see in place of the file."""

from __future__ import annotations

import os
from pathlib import Path

from pygls.uris import to_fs_path


class Buffers:
    """Kept up to date by document sync, in the loop; `text` is a look-up and may be called from any thread.

    A buffer counts as unsaved once it was changed after the client opened or saved it, and also when its text at the
    opening was not the file's (an editor that restores unsaved work).
    """

    def __init__(self) -> None:
        self._unsaved: dict[str, str] = {}
        self._uris: dict[str, str] = {}  # by path

    def text(self, path: Path) -> str | None:
        uri = self._uris.get(str(path))
        return None if uri is None else self._unsaved.get(uri)

    def changed(self, uri: str, text: str) -> None:
        if path := file_path(uri):
            self._uris[path] = uri
            self._unsaved[uri] = text

    def same_file(self, uri: str, path: str) -> None:
        """The buffer is this file, too: where the links in its path lead."""
        self._uris[path] = uri

    def saved(self, uri: str) -> None:
        self._unsaved.pop(uri, None)

    def closed(self, uri: str) -> None:
        self.saved(uri)
        self._uris = {path: known for path, known in self._uris.items() if known != uri}


def file_path(uri: str) -> str | None:
    """The path of a file URI; None for another scheme (an untitled buffer, a diff view)."""
    return to_fs_path(uri) if uri.startswith("file:") else None


def look_at_file(path: str, text: str) -> tuple[str, bool]:
    """Where the path's links lead, and whether the file holds another text than the buffer. Reads the file; one that
    cannot be read as UTF-8 is taken to be as shown."""
    real = os.path.realpath(path)
    try:
        differs = Path(real).read_bytes().decode("utf-8-sig") != text.removeprefix("\ufeff")
    except FileNotFoundError:
        differs = True
    except (OSError, UnicodeDecodeError):
        differs = False
    return real, differs
