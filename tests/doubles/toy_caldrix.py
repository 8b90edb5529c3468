"""`caldrix` with scripted members: the real command, daemon, socket and frames. A model reference is a script's path.

Run as `python -m tests.doubles.toy_caldrix pool …`.
"""

from __future__ import annotations

import sys

from caldrix.commands.arguments import parse
from caldrix.commands.control import run_control
from caldrix.commands.exits import Stop, say
from caldrix.commands.serve import run_pool
from tests.doubles.toy_backend import load_toy


def main() -> int:
    given = parse(sys.argv[1:])
    try:
        return run_control(given) if given.command in ("pool stop", "pool status") else run_pool(given, load_toy)
    except Stop as stop:
        say(str(stop))
        return stop.code


if __name__ == "__main__":
    sys.exit(main())
