"""What a waiting generation tells the user."""

from __future__ import annotations

import pytest

from aerix_server.pool.port import Waiting
from aerix_server.runtime.waiting import waiting_event


@pytest.mark.parametrize(
    ("item", "what", "detail"),
    [
        (Waiting("queue", 2, 2, 12.4), None, "about 12 s"),
        (Waiting("queue", 2, 2, 12.4), "routing", "routing, about 12 s"),
        (Waiting("queue", 2, 2), None, None),
        (Waiting("prefill", 10, 90), "routing", "routing"),
    ],
)
def test_the_place_comes_with_the_pools_estimate(item: Waiting, what: str | None, detail: str | None) -> None:
    event = waiting_event(item, agent="root", what=what)
    assert (event.phase, event.done, event.total, event.detail) == (item.phase, item.done, item.total, detail)
