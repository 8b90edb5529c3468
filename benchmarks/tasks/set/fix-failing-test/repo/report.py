"""Sums of a log by project."""

from collections import Counter

from durations import format_duration


def totals(entries):
    """Minutes by project."""
    sums = Counter()
    for entry in entries:
        sums[entry.project] += entry.minutes
    return sums


def report(entries):
    """A line for each project, the one with the most time first."""
    return [f"{project}: {format_duration(minutes)}" for project, minutes in totals(entries).most_common()]
