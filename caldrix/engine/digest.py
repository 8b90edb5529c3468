"""A model file's SHA-256, computed once and remembered for as long as the file stays as it is."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from platformdirs import user_cache_path


def model_digest(path: Path) -> str:
    """The hash in hexadecimal. The first time it takes a second for each gigabyte or so. Raises OSError."""
    facts = path.stat()
    key = json.dumps([os.fspath(path), facts.st_size, facts.st_mtime_ns, facts.st_ino])
    remembered = user_cache_path("caldrix") / "digests" / hashlib.sha256(key.encode()).hexdigest()[:24]
    try:
        known = remembered.read_text().strip()
        if len(known) == hashlib.sha256().digest_size * 2:
            return known
    except (OSError, ValueError):
        pass  # not computed yet, or unreadable: it is computed again
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        remembered.parent.mkdir(parents=True, exist_ok=True)
        draft = remembered.with_suffix(f".{os.getpid()}")
        draft.write_text(digest)
        draft.replace(remembered)
    except OSError:
        return digest  # best effort: found again at the next start
    return digest
