"""Processes of cancelled requests that were told to end and take their time: nobody leaves before they are gone."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from aerix_server.tools.base import Leftover
from aerix_server.tools.jobs import KILL_WAIT_S

_POLL_S: Final = 0.02


class Leftovers:
    """Of all sessions of a server. Called on the event loop's thread."""

    def __init__(self) -> None:
        self._kept: list[Leftover] = []

    def keep(self, leftover: Leftover) -> None:
        self._kept = [kept for kept in self._kept if not kept.gone()]
        self._kept.append(leftover)

    async def gone(self) -> None:
        """Wait until all are gone, or could not be ended in time."""
        deadline = time.monotonic() + KILL_WAIT_S
        # The threads that end them set no event of this loop.
        while not all(kept.gone() for kept in self._kept) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
