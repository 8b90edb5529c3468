"""A real llama.cpp server in a process of its own, so that a test can kill it. Run as `python -m … MODEL_FILE`."""

from __future__ import annotations

import signal
import sys

import xllamacpp


def main() -> None:
    """Serve until killed; the first line on stdout is the address."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = sys.argv[1]
    parameters.model_alias = {"tiny"}
    parameters.n_ctx = 4096
    parameters.n_parallel = 2
    parameters.cpuparams.n_threads = 2
    parameters.warmup = False
    parameters.no_extra_bufts = True  # as built for every processor: no kernel that this one may not have
    parameters.port = 0
    parameters.endpoint_slots = True
    parameters.verbosity = 0
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)  # noqa: T201 - what the test waits for
    signal.pause()


if __name__ == "__main__":
    main()
