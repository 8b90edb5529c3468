"""Native calls that may nest deeply, where the end of the stack would be the end of the process, or take for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
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

    thread = threading.Thread(target=run, name="deep-stack", daemon=True)
    with _sizing:
        usual = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
    return outcome.result(timeout)
