"""Reading a session's log: every whole event loads, whatever stands between; what does not is told by line number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CUT = "the last line is cut off"


@dataclass(frozen=True)
class LogContents:
    """`events` are the good lines as written, unknown kinds and fields included; `problems` are (line, reason)."""

    events: list[dict[str, Any]]
    problems: list[tuple[int, str]]


def read_log(path: Path) -> LogContents:
    """Changes nothing on disk. Raises OSError."""
    return parse_log(path.read_bytes())


def parse_log(data: bytes) -> LogContents:
    """A last line without its newline counts when it is a whole event. Empty lines are no events and no problems."""
    events: list[dict[str, Any]] = []
    problems: list[tuple[int, str]] = []
    for number, line, whole in _lines(data):
        event, reason = parse_line(line)
        if event is not None:
            events.append(event)
        else:
            problems.append((number, reason if whole else CUT))
    return LogContents(events, problems)


def _lines(data: bytes) -> Iterator[tuple[int, bytes, bool]]:
    """Number, text and whether the newline stands, of each line that is not blank. Only LF ends a line."""
    *lines, rest = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, line, True
    if rest.strip():
        yield len(lines) + 1, rest, False


def parse_line(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """The event of a line, or None and why it is none."""
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 at byte {error.start}"
    except RecursionError:
        return None, "not an event: nested too deeply"
    except ValueError:
        return None, _not_json(line)
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return None, "not an event: no type"
    seq = value.get("seq")
    if not isinstance(seq, int) or isinstance(seq, bool) or seq < 1:
        return None, "not an event: no seq"
    return value, ""


def _not_json(line: bytes) -> str:
    nulls = line.count(b"\0")
    return f"not JSON: {nulls} NUL bytes" if nulls else "not JSON"
