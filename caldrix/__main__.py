"""The `caldrix` command: words in, exit code out. What it does is in `caldrix.commands`."""

from __future__ import annotations

import argparse
import os
import sys

from caldrix.commands.arguments import parse
from caldrix.commands.exits import EXIT_FAILED, EXIT_INTERRUPTED, Stop, say


def main() -> int:
    """Run the command that the process was started with."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    given = parse(sys.argv[1:])
    try:
        return _command(given)
    except Stop as stop:
        say(str(stop))
        return stop.code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit finds a reader
        return EXIT_FAILED


def _command(given: argparse.Namespace) -> int:
    if given.command in ("pool stop", "pool status"):
        from caldrix.commands.control import run_control

        return run_control(given)
    if given.command == "pull":
        from caldrix.commands.pull import run_pull

        return run_pull(given)
    if given.command == "models":
        from caldrix.commands.models import run_models

        return run_models(given)
    if given.command == "doctor":
        from caldrix.commands.doctor import doctor

        return doctor(given)
    # Only here: the engine's library takes a second to import, and a command to a running pool needs none of it.
    from caldrix.commands.loader import load

    if given.command == "run":
        from caldrix.commands.run import run

        return run(given, load)
    from caldrix.commands.serve import run_pool

    return run_pool(given, load)


if __name__ == "__main__":
    sys.exit(main())
