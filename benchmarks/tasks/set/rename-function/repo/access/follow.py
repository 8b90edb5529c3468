"""Following a log that grows."""

import time

from access.parser import parse_line

POLL_SECONDS = 1.0


def follow(file, poll=POLL_SECONDS, until=lambda: False):
    """Yield a record for each line that is added, until `until` says so."""
    while not until():
        line = file.readline()
        if line.strip():
            yield parse_line(line)
        elif not line:
            time.sleep(poll)
