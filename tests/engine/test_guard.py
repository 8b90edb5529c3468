"""The guard: native memory is freed when nobody uses it, and not before."""

from __future__ import annotations

import threading

import pytest

from caldrix.engine.guard import Guard
from caldrix.protocol.errors import Refused

BOUND_S = 10.0


def test_close_waits_for_who_is_inside_and_lets_nobody_in() -> None:
    guard, closed = Guard(), threading.Event()

    def close() -> None:
        guard.close()
        closed.set()

    with guard.use():
        closing = threading.Thread(target=close)
        closing.start()
        assert not closed.wait(0.05)
    assert closed.wait(BOUND_S)
    closing.join()
    with pytest.raises(Refused, match="unloaded"), guard.use():
        pass
