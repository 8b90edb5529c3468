"""`python -m benchmarks.pool.xllama_server`: the server in the package xllamacpp, by llama-server's own words."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from typing import Any


def main() -> int:
    """Serve until a signal ends it."""
    given = _arguments()
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = given.m
    params.n_ctx, params.n_parallel = given.c, given.np
    params.cpuparams.n_threads = given.t
    params.cpuparams_batch.n_threads = given.tb
    params.hostnames, params.port = [given.host], given.port
    # Bound to a name: the server ends with the last reference to it.
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", required=True, metavar="MODEL")
    for name in ("-t", "-tb", "-c", "-np", "--port"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    return parser.parse_args()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    sys.exit(main())
