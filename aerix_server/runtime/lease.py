"""A context of the pool on loan: however its use ends, it is given back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final

from aerix_server.pool.port import ContextState, Pool, PoolFailed

RELEASE_S: Final = 0.1


class Lease:
    """At most one context. `take` makes it, `give_back` drops it; between the two it may be lost to no cancel."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._making: asyncio.Task[ContextState] | None = None

    async def take(self, making: Coroutine[Any, Any, ContextState]) -> ContextState:
        """The context that `making` makes. Raises PoolFailed.

        Who is cancelled here does not learn its name, so the answer is waited for again when it is given back.
        """
        self._making = asyncio.create_task(making)
        try:
            return await asyncio.shield(self._making)
        except Exception:
            self._making = None
            raise

    async def give_back(self) -> None:
        """Drop the context, if there is one, within RELEASE_S. A second time does nothing.

        It is no loss if that fails: the pool drops what is left once its client has gone.
        """
        making, self._making = self._making, None
        if making is None:
            return
        with contextlib.suppress(PoolFailed, TimeoutError):
            async with asyncio.timeout(RELEASE_S):
                await self._pool.drop((await making).context)
