"""The lines of a log."""

from dataclasses import dataclass

from durations import parse_duration


@dataclass(frozen=True)
class Entry:
    day: str
    minutes: int
    project: str


def read_entries(lines):
    """Entries of all lines that are neither empty nor a comment."""
    entries = []
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        day, duration, project = line.split(maxsplit=2)
        entries.append(Entry(day, parse_duration(duration), project.strip()))
    return entries
