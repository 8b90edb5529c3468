"""A short measurement at load: what passes cost on this machine as it is now, and how many threads are fastest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from caldrix.engine.backend import Backend, Row
from caldrix.engine.pace import Paces, fastest
from caldrix.engine.rates import Rates

BOUND_SECONDS: Final = 4.0
"""Then it ends with what it has: a large model on a busy machine."""
ROUNDS: Final = 3
CHUNK_ROWS: Final = 32
CONTEXT_ROWS: Final = 32
SIZES: Final = (2, 4, 8, 16)


def measure(backend: Backend, counts: Sequence[int]) -> tuple[Rates, Paces]:
    """Passes of one row and of a chunk with each thread count, then of sizes between with the best. Takes sequence 0,
    which is empty before and after. Raises EngineFailed."""
    end = time.monotonic() + BOUND_SECONDS
    rates = Rates()
    token = backend.tokenize("a")[0]

    def timed(rows: int, threads: int) -> float:
        backend.set_threads(threads)
        started = time.perf_counter()
        backend.decode([Row(token, CONTEXT_ROWS + place, 0, wanted=True) for place in range(rows)])
        taken = time.perf_counter() - started
        if not backend.keep(0, CONTEXT_ROWS):
            _lay(backend, token)
        return taken

    _lay(backend, token)
    timed(1, counts[-1])  # the first pass of all reads the weights from the disk
    ones = {count: timed(1, count) for count in counts}
    for _ in range(ROUNDS - 1):
        ones |= {count: min(ones[count], timed(1, count)) for count in counts if time.monotonic() < end}
    chunks = {counts[-1]: timed(CHUNK_ROWS, counts[-1])}
    chunks |= {count: timed(CHUNK_ROWS, count) for count in counts[:-1] if time.monotonic() < end}
    few, many = fastest(ones), fastest(chunks)
    rates.note(1, ones[few])
    rates.note(CHUNK_ROWS, chunks[many])
    for rows in SIZES:
        if time.monotonic() < end:
            rates.note(rows, min(timed(rows, few), timed(rows, few)))
    backend.clear(0)
    return rates, Paces(counts, few, many)


def _lay(backend: Backend, token: int) -> None:
    backend.clear(0)
    backend.decode([Row(token, place, 0, wanted=place == CONTEXT_ROWS - 1) for place in range(CONTEXT_ROWS)])
