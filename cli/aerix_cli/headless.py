"""`aerix -p`: one request, its events shown, its end printed. Everything goes through the server's protocol."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from aerix_cli.connect import Server, connect
from aerix_cli.diff_text import diff_text
from aerix_cli.options import Print
from aerix_cli.progress import Progress
from aerix_cli.result import NO_DIFF, Finished, answer_text, ended, json_line, result_object
from aerix_cli.rpc import INVALID_PARAMS, RpcError, ServerGone
from aerix_cli.stop import Stop
from aerix_cli.terminal import ReaderGone, is_screen, wants_color, watch_reader, write_err, write_out
from aerix_cli.texts import one_line, visible
from aerix_server.protocol import messages as m
from aerix_server.protocol.outcomes import EXIT_READER_GONE

CANCEL_S: Final = 10.0
"""How long a cancelled request may take to end."""
GONE_S: Final = 2.0
"""The same when nobody reads the result."""
DIFF_S: Final = 60.0
NO_POOL: Final = frozenset({"pool_unavailable", "model_refused"})

Answer = TypeVar("Answer")


async def run_print(options: Print, prompt: str) -> int:
    """Gives the exit code. Raises RpcError for params or settings that the server refused."""
    stop = Stop()
    stop.watch_signals()
    watch_reader(asyncio.get_running_loop(), lambda: stop.ask("reader"))
    progress = Progress(
        write_err,
        quiet=options.quiet,
        screen=is_screen(2, os.environ) and options.color != "never",
        color=wants_color(options.color, 2, os.environ),
    )
    run = _Run(options, stop, progress)
    try:
        finished = await run.to_the_end(prompt)
        if stop.why == "reader":
            return EXIT_READER_GONE
        await _print(finished, options)
    except ReaderGone:
        return EXIT_READER_GONE
    return finished.exit_code


class _Stopped(Exception):
    """The user or the reader left before the server answered."""


class _Run:
    """One run: what is known of it so far, so that its end can be told wherever it ends."""

    def __init__(self, options: Print, stop: Stop, progress: Progress) -> None:
        self._options = options
        self._stop = stop
        self._progress = progress
        self._started = time.monotonic()
        self._session = ""
        self._request = ""
        self._root = ""
        self._turns = 0

    async def to_the_end(self, prompt: str) -> Finished:
        try:
            async with connect() as server:
                showing = asyncio.create_task(self._show(server))
                try:
                    finished = await self._ask(server, prompt)
                finally:
                    showing.cancel()
                    await asyncio.gather(showing, return_exceptions=True)
        except _Stopped:
            finished = self._ended("cancelled", "cancelled before the request started")
        except RpcError as error:
            if error.code == INVALID_PARAMS:
                raise
            finished = self._ended("failed", error.sentence, no_pool=error.name in NO_POOL)
        except ServerGone as error:
            finished = self._ended("failed", str(error) or "The server is gone.")
        self._progress.clear()
        if finished.outcome.outcome != "final":
            reason = f": {one_line(finished.outcome.reason, 2000)}" if finished.outcome.reason else ""
            write_err(f"aerix: {finished.outcome.outcome}{reason}\n")
        return finished

    async def _ask(self, server: Server, prompt: str) -> Finished:
        options = self._options
        new = m.SessionNewParams(cwd=options.cwd, model=options.model)
        made = await self._or_stopped(server.call("aerix/session/new", new, m.SessionResult))
        self._session = made.session.id
        start = m.RequestStartParams(
            session=self._session,
            prompt=prompt,
            route=options.route,
            max_turns=options.max_turns,
            output_schema=options.schema,
        )
        started = await self._or_stopped(server.call("aerix/request/start", start, m.RequestStartResult))
        self._request = started.request
        outcome = await self._outcome(server)
        await server.rpc.notes.join()
        return Finished(outcome, self._session, self._request, self._turns, await self._diff(server))

    async def _outcome(self, server: Server) -> m.Outcome:
        """Wait for the request's end; when the run must stop, cancel it and wait a little."""
        ref = m.RequestRef(session=self._session, request=self._request)
        waiting = asyncio.create_task(server.call("aerix/request/wait", ref, m.Outcome))
        try:
            return await self._or_stopped(asyncio.shield(waiting))
        except _Stopped:
            with suppress(TimeoutError):
                async with asyncio.timeout(CANCEL_S if self._stop.why == "signal" else GONE_S):
                    await server.call("aerix/request/cancel", ref, m.RequestCancelResult)
                    outcome = await waiting
                    return outcome if self._stop.why == "reader" else _as_cancelled(outcome)
            return self._ended("cancelled", "cancelled; the request did not end in time").outcome
        finally:
            waiting.cancel()

    async def _diff(self, server: Server) -> m.DiffResult:
        asked = m.DiffGetParams(session=self._session, request=self._request)
        try:
            async with asyncio.timeout(DIFF_S):
                diff = await server.call("aerix/diff/get", asked, m.DiffResult)
        except (RpcError, TimeoutError) as error:
            why = one_line(str(error)) or f"it took more than {DIFF_S:.0f} s"
            write_err(f"aerix: the diff could not be made: {why}\n")
            return NO_DIFF
        if diff.notice:
            write_err(f"aerix: {one_line(diff.notice, 2000)}\n")
        return diff

    async def _show(self, server: Server) -> None:
        """Take every notification in order, to the end of the run."""
        while True:
            method, params = await server.rpc.notes.get()
            try:
                if method == "aerix/event":
                    await self._event(params)
            except ReaderGone:
                self._stop.ask("reader")
            finally:
                server.rpc.notes.task_done()

    async def _event(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "agent.spawn" and event.get("kind") == "root":
            self._root = str(event.get("agent"))
        elif kind == "agent.end" and event.get("agent") == self._root:
            self._turns = int(event.get("turns", 0))
        self._progress.show(event)
        if self._options.format == "stream-json" and self._stop.why != "reader":
            await write_out(json_line(event))

    async def _or_stopped(self, work: Coroutine[Any, Any, Answer] | asyncio.Future[Answer]) -> Answer:
        """The work's result, or _Stopped as soon as the run must stop."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop.event.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _Stopped
            return task.result()
        finally:
            stopped.cancel()
            task.cancel()

    def _ended(self, kind: Any, reason: str, no_pool: bool = False) -> Finished:
        ms = round((time.monotonic() - self._started) * 1000)
        return Finished(ended(kind, reason, ms), self._session, self._request, self._turns, no_pool=no_pool)


def _as_cancelled(outcome: m.Outcome) -> m.Outcome:
    """The request may have ended by itself while the cancel was on its way: to the user it was cancelled."""
    return outcome.model_copy(update={"outcome": "cancelled"})


async def _print(finished: Finished, options: Print) -> None:
    if options.format != "text":
        await write_out(json_line(result_object(finished, options.schema is not None)))
        return
    answer = visible(answer_text(finished.outcome)).rstrip("\n")
    color = wants_color(options.color, 1, os.environ)
    diff = diff_text(finished.diff.unified, finished.diff.untracked, color)
    parts = [f"{answer}\n"] if answer else []
    if diff:
        parts.append(diff)
    if parts:
        await write_out("\n".join(parts))
