"""The spool of a session: whole texts too long for a context or a log line, each written once."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from aerix_server.config.bounds import SPOOL_BYTES


@dataclass(frozen=True)
class Spool:
    """Files `<n>.txt` in `folder`, which is made on first use."""

    folder: Path

    async def keep(self, text: str) -> Path:
        """Write `text` to a new file and give its path; it is on disk when this returns. Raises OSError."""
        return await asyncio.to_thread(self.keep_now, text)

    def keep_now(self, text: str) -> Path:
        """The same, blocking: for the rare text that is too long for a line of the log."""
        data = text.encode("utf-8")
        if len(data) > SPOOL_BYTES:
            note = f"\n[the spool keeps the first {SPOOL_BYTES} of {len(data)} bytes]\n"
            data = data[:SPOOL_BYTES].decode("utf-8", "ignore").encode() + note.encode()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path, handle = self._claim()
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return path

    def _claim(self) -> tuple[Path, int]:
        """A file of the next free number, opened so that nobody else has it."""
        taken = [int(path.stem) for path in self.folder.glob("*.txt") if path.stem.isdecimal()]
        number = max(taken, default=0) + 1
        while True:
            path = self.folder / f"{number}.txt"
            try:
                return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                number += 1
