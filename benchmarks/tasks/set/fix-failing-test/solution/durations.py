"""Durations as people write them in a log: 2h, 45m, 1h30m."""

import re

PATTERN = re.compile(r"^(?:(\d+)h)?(?:(\d+)m)?$")
MINUTES_PER_HOUR = 60


def parse_duration(text):
    """The minutes that `text` stands for. Raises ValueError for anything else."""
    match = PATTERN.match(text.strip())
    if not match or not text.strip():
        raise ValueError(f"not a duration: {text!r}")
    hours, minutes = match.groups()
    return int(hours or 0) * MINUTES_PER_HOUR + int(minutes or 0)


def format_duration(minutes):
    """The shortest way to write so many minutes: 90 is 1h30m, 60 is 1h, 0 is 0m."""
    hours, rest = divmod(minutes, MINUTES_PER_HOUR)
    if hours and not rest:
        return f"{hours}h"
    if hours:
        return f"{hours}h{rest}m"
    return f"{rest}m"
