"""`index.json`: what a list of sessions shows, kept beside the logs so that they need not be read each time.

The logs are the record. An entry counts only while the size and time of its log are those it was made from; what is
missing, unreadable or stale is made again from the log.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from aerix_server.protocol.events import ProfileInfo
from aerix_server.protocol.messages import Session
from aerix_server.session.log_reader import read_log
from aerix_server.session.summary import summarise

_log = logging.getLogger(__name__)
NAME = "index.json"
VERSION = 1


@dataclass(frozen=True)
class Stamp:
    """Of a log file: bytes, and nanoseconds since the epoch."""

    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Entry:
    stamp: Stamp
    session: Session


def refresh_index(folder: Path) -> list[Session]:
    """Every session with a log in the folder, in no order. Writes the index when it was not up to date. Blocking."""
    known = _load(folder / NAME)
    entries: dict[str, Entry] = {}
    for path, stamp in _logs(folder):
        old = known.get(path.stem)
        if old and old.stamp == stamp:
            entries[path.stem] = old
        elif session := _read(path):
            entries[path.stem] = Entry(stamp, session)
    if entries != known:
        _save(folder / NAME, entries)
    return [entry.session for entry in entries.values()]


def _logs(folder: Path) -> Iterator[tuple[Path, Stamp]]:
    for path in sorted(folder.glob("*.jsonl")):
        if "." in path.stem:
            continue  # <id>.claude.jsonl is a projection.
        with contextlib.suppress(OSError):
            status = path.stat()
            yield path, Stamp(status.st_size, status.st_mtime_ns)


def _read(path: Path) -> Session | None:
    try:
        return summarise(read_log(path).events)
    except OSError as error:
        _log.warning("the session log %s cannot be read: %s", path, error)
        return None


def _load(path: Path) -> dict[str, Entry]:
    """The entries of a good index of this version, else none."""
    try:
        value = json.loads(path.read_bytes())
        if value["v"] != VERSION:
            return {}
        return {item["session"]["id"]: _entry(item) for item in value["sessions"]}
    except (OSError, ValueError, KeyError, TypeError, ValidationError, RecursionError):
        return {}


def _entry(item: dict[str, Any]) -> Entry:
    fields = dict(item["session"])
    if fields.get("profile") is not None:
        fields["profile"] = ProfileInfo.model_validate(fields["profile"])
    return Entry(Stamp(**item["stamp"]), Session.model_validate(fields))


def _save(path: Path, entries: dict[str, Entry]) -> None:
    """Replace the index at once. One that cannot be written is only made again the next time."""
    items = [{"stamp": asdict(entry.stamp), "session": entry.session.model_dump()} for entry in entries.values()]
    text = json.dumps({"v": VERSION, "sessions": items}, indent=1)
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        beside.write_text(text, encoding="ascii")
        beside.replace(path)
    except OSError as error:
        _log.warning("the index %s cannot be written: %s", path, error)
        with contextlib.suppress(OSError):
            beside.unlink()
