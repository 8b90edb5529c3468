"""`aerix-server`: the backend on stdin and stdout."""

from __future__ import annotations

import argparse
import sys
from typing import Final, NoReturn

from aerix_server import __version__
from aerix_server.lsp.process import run
from aerix_server.session.sessions import Sessions

EXIT_USAGE: Final = 64


class Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def main() -> NoReturn:
    parser = Arguments(
        prog="aerix-server",
        description="The Aerix backend. It speaks LSP on stdin and stdout.",
        epilog="Exit codes: 0 after shutdown and exit, 1 when the client left without them, 64 wrong usage.",
        allow_abbrev=False,
    )
    parser.add_argument("--standalone", action="store_true", help="keep everything in this one process (the default)")
    parser.add_argument("--version", action="version", version=f"aerix-server {__version__}")
    parser.parse_args()
    run(lambda settings, overlay: Sessions(settings, overlay=overlay))


if __name__ == "__main__":
    main()
