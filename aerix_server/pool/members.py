"""Making sure that a pool holds a model: the member that has it, or a load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aerix_server.config.bounds import AUTOSTART_POLL_S
from aerix_server.config.settings import Settings
from aerix_server.pool import translate
from aerix_server.pool.caldrix_pool import CaldrixPool, pool_errors
from aerix_server.pool.port import MemberState, PoolFailed
from aerix_server.pool.references import same_model, slug
from aerix_server.protocol.events import Notice, ProgressEvent
from aerix_server.protocol.outcomes import AerixError, ErrorName
from caldrix.protocol.messages import Member, Progress

Report = Callable[[ProgressEvent | Notice], None]
_MODEL_CODES = frozenset({"model_not_found", "model_refused", "memory", "footprint_unknown"})


async def ensure_member(pool: CaldrixPool, model: str, settings: Settings, report: Report) -> MemberState:
    """The ready member that holds `model`, loaded if need be. Raises AerixError: model_refused, pool_unavailable."""
    bound = settings.pool.start_timeout_secs
    try:
        async with asyncio.timeout(bound):
            return translate.member(await _ready(pool, model, report))
    except TimeoutError as error:
        raise AerixError("model_refused", f"the model {model} was not loaded within {bound} s") from error
    except PoolFailed as error:
        code: ErrorName = "model_refused" if error.code in _MODEL_CODES else "pool_unavailable"
        raise AerixError(code, f"the pool cannot serve {model}: {error.message}") from error


async def _ready(pool: CaldrixPool, model: str, report: Report) -> Member:
    while True:
        found = await _holding(pool, model)
        if found is None:
            return await _load(pool, model, report)
        if found.status == "ready":
            return found
        # Somebody else is loading it.
        report(ProgressEvent(phase="load", done=0, total=0, detail=model))
        await asyncio.sleep(AUTOSTART_POLL_S)


async def _holding(pool: CaldrixPool, model: str) -> Member | None:
    """The member with this model that is ready or on its way."""
    held = [member for member in await pool.members() if same_model(member.model, model)]
    ready = [member for member in held if member.status == "ready"]
    return next(iter([*ready, *(member for member in held if member.status == "loading")]), None)


async def _load(pool: CaldrixPool, model: str, report: Report) -> Member:
    def progress(frame: Progress) -> None:
        if frame.phase != "prefill":
            report(ProgressEvent(phase=frame.phase, done=frame.done, total=frame.total, detail=model))

    try:
        with pool_errors():
            return await pool.control.load(model, slug(model), on_progress=progress)
    except PoolFailed:
        # Two may ask at once: the one who came second waits for the first one's load.
        if await _holding(pool, model) is None:
            raise
        return await _ready(pool, model, report)
