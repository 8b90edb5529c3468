"""One request of a session, from the bound pool to the diff: what happens in which order, and that it ends by name."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, TypeVar

from aerix_server.pool.start import BoundPool
from aerix_server.protocol.events import (
    Notice,
    ProgressEvent,
    RequestEnd,
    RequestStart,
    Snapshot,
    Usage,
)
from aerix_server.protocol.messages import DiffResult, Outcome
from aerix_server.protocol.outcomes import AerixError
from aerix_server.runtime.ports import RequestResult
from aerix_server.session.diff import diff_since, stat_of
from aerix_server.session.diff_store import save_diff
from aerix_server.session.log import LogFailed
from aerix_server.session.snapshot import NO_REPOSITORY, Taken, take_snapshot
from aerix_server.session.work import Place, Request, history_for, ports_for

_log = logging.getLogger(__name__)

RELEASE_S = 5.0
CANCELLED_EARLY = "the request was cancelled before its snapshot was taken"
T = TypeVar("T")


async def serve(request: Request, place: Place) -> None:
    """Runs the request to its end and sets `done`. Raises nothing; asyncio's cancellation ends it as cancelled."""
    started = time.monotonic()
    result = await _result(request, place)
    try:
        result = await _close(request, place, result, started)
    except Exception:
        _log.exception("the end of the request %s of the session %s failed", request.spec.id, place.files.id)
    finally:
        request.done.set_result(_outcome(result, started))


def _outcome(result: RequestResult, started: float) -> Outcome:
    return Outcome(
        outcome=result.outcome,
        text=result.text,
        output=result.output,
        reason=result.reason,
        usage=result.usage,
        duration_ms=_ms(started),
        files_touched=list(result.files_touched),
    )


async def _result(request: Request, place: Place) -> RequestResult:
    try:
        return await _attempt(request, place)
    except asyncio.CancelledError:
        return _without_run("cancelled", "the server stopped the request")
    except AerixError as error:
        request.refused = error
        return _without_run("failed", error.message)
    except LogFailed as error:
        return _without_run("failed", str(error))
    except Exception as error:
        _log.exception("the request %s of the session %s failed", request.spec.id, place.files.id)
        kind = type(error).__name__
        return _without_run(
            "failed", f"a fault of Aerix itself ({kind}) ended the request; the server's log tells more"
        )


async def _attempt(request: Request, place: Place) -> RequestResult:
    bound = refusal = None
    try:
        bound = await _bind(request, place)
    except AerixError as error:
        refusal = error
    try:
        taken = await _begin(request, place, bound)
        if refusal is not None:
            raise refusal
        if bound is None:
            return _without_run("cancelled", "the request was cancelled before a pool was found")
        return await place.run(
            request.spec, await ports_for(request, place, bound, taken), await history_for(request, place)
        )
    finally:
        if bound is not None:
            await _release(bound)


async def _bind(request: Request, place: Place) -> BoundPool | None:
    """The pool, or None when the request was cancelled first. Raises AerixError."""

    def report(event: ProgressEvent | Notice) -> None:
        place.journal.emit(event.model_copy(update={"request": request.spec.id}))

    return await _unless_cancelled(request, place.bind(place.settings, report))


async def _unless_cancelled(request: Request, work: Awaitable[T]) -> T | None:
    """The work's result, or None when the request was cancelled first."""
    task = asyncio.ensure_future(work)
    stop = asyncio.ensure_future(request.cancelled.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        task.cancel()  # Does nothing to one that is done.
        await asyncio.wait({task}, timeout=RELEASE_S)
    if task.cancelled() or not task.done():
        return None
    return task.result()


async def _begin(request: Request, place: Place, bound: BoundPool | None) -> Taken:
    """The log is open, the snapshot taken, and request.start written."""
    taken = await _unless_cancelled(request, asyncio.to_thread(take_snapshot, place.cwd, place.store))
    if taken is None:
        taken = Taken(Snapshot(kind="none", notice=CANCELLED_EARLY), None, None)
    notices: list[str] = []
    if not place.journal.is_open:
        notices += await asyncio.to_thread(place.journal.open)
    if place.journal.last_seq == 0:
        place.journal.emit(place.start(bound, taken))
        notices += place.notices
    request.snapshot = taken.snapshot
    place.journal.emit(
        RequestStart(
            request=request.spec.id,
            prompt=request.prompt,
            attachments=request.attachments,
            snapshot=taken.snapshot,
        )
    )
    if taken.snapshot.notice and taken.snapshot.notice not in (NO_REPOSITORY, CANCELLED_EARLY):
        notices.append(taken.snapshot.notice)
    for notice in notices:
        place.journal.emit(Notice(request=request.spec.id, level="warning", text=notice))
    return taken


async def _release(bound: BoundPool) -> None:
    try:
        async with asyncio.timeout(RELEASE_S):
            await bound.pool.aclose()
    except Exception:
        _log.warning("the connection to the pool did not close", exc_info=True)


async def _close(request: Request, place: Place, result: RequestResult, started: float) -> RequestResult:
    """The diff, and request.end. The log of a full disk may not take the line: then the outcome says so."""
    if request.snapshot is None:
        return result
    diff = await _diff(request, place, result)
    try:
        place.journal.emit(
            RequestEnd(
                request=request.spec.id,
                outcome=result.outcome,
                reason=result.reason,
                diff=stat_of(diff),
                usage=result.usage,
                ms=_ms(started),
            )
        )
    except LogFailed as error:
        if result.outcome == "failed":
            return result
        return replace(result, outcome="failed", reason=str(error))
    return result


async def _diff(request: Request, place: Place, result: RequestResult) -> DiffResult:
    assert request.snapshot is not None
    touched = list(dict.fromkeys([*result.files_touched, *request.touched]))
    kept = request.shadow.kept() if request.shadow else []
    diff = await asyncio.to_thread(diff_since, place.cwd, place.store, request.snapshot, touched, kept)
    with contextlib.suppress(OSError):  # It can be made again, against the working tree of then.
        await asyncio.to_thread(save_diff, place.files.diff(request.spec.id), diff)
    return diff


def _without_run(outcome: Any, reason: str) -> RequestResult:
    return RequestResult(
        outcome=outcome, reason=reason, text=None, output=None, usage=Usage(), turns=0, files_touched=()
    )


def _ms(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
