"""Figures of a log."""

from collections import Counter

from access import parser


def errors(lines):
    """How often each path gave an error (status 400 and above)."""
    records = parser.parse_lines(lines)
    return Counter(record.path for record in records if record.status >= 400)


def largest(lines):
    """The largest record, None when there is none; broken lines are skipped."""
    found = None
    for line in lines:
        try:
            record = parser.parse_record(line)
        except ValueError:
            continue
        if found is None or record.size > found.size:
            found = record
    return found
