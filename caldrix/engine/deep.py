"""Native calls that may nest deeply, where the end of the stack would be the end of the process, or take for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

STACK_BYTES: Final = 512 << 20
"""Address space; only the pages that are touched cost memory."""

Result = TypeVar("Result")
_sizing = threading.Lock()


def with_deep_stack(function: Callable[[], Result], timeout: float) -> Result:
    """What `function` returns or raises, from a thread whose stack has STACK_BYTES.

    Raises TimeoutError after `timeout` seconds; the thread, which nothing can stop, then ends by itself.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    start_deep(threading.Thread(target=run, name="deep-stack", daemon=True))
    return outcome.result(timeout)


def start_deep(thread: threading.Thread) -> None:
    """Start a thread whose stack has STACK_BYTES: one that follows constraints, which may nest as deeply."""
    with _deep_stacks():
        thread.start()


def deep_pool(name: str) -> ThreadPoolExecutor:
    """A pool of one thread whose stack has STACK_BYTES."""
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
    with _deep_stacks():
        pool.submit(int).result()  # its thread is started by its first task
    return pool


@contextmanager
def _deep_stacks() -> Iterator[None]:
    """Threads started in the block have deep stacks; others that start meanwhile do no harm by it."""
    with _sizing:
        usual = threading.stack_size(STACK_BYTES)
        try:
            yield
        finally:
            threading.stack_size(usual)
