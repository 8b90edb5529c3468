"""One conversation held by this process: its requests one at a time, its log, and those who follow it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import aerix_server
from aerix_server.config.load import Loaded
from aerix_server.pool.start import BoundPool
from aerix_server.protocol import messages as m
from aerix_server.protocol.events import SessionEnd, SessionStart
from aerix_server.protocol.outcomes import AerixError, BadParams
from aerix_server.runtime.ports import RequestSpec
from aerix_server.session.attachments import with_attachments
from aerix_server.session.clock import now
from aerix_server.session.folders import SessionFiles
from aerix_server.session.gate import Gate
from aerix_server.session.index import refresh_index
from aerix_server.session.journal import Journal
from aerix_server.session.log import LogFailed
from aerix_server.session.project import Project
from aerix_server.session.request import serve
from aerix_server.session.snapshot import Taken
from aerix_server.session.subscribers import Subscriber, Subscribers
from aerix_server.session.summary import title_of
from aerix_server.session.work import Bind, Place, Request, Run
from aerix_server.tools.base import Leftover

_log = logging.getLogger(__name__)
CLOSE_S = 10.0
"""How long a running request has to end when its session is closed, before its task is cancelled; then once more."""


class LiveSession:
    """Made by `Sessions.new`. Its log begins with its first request."""

    def __init__(
        self,
        cwd: Path,
        project: Project,
        files: SessionFiles,
        store: Path,
        loaded: Loaded,
        title: str | None,
        bind: Bind,
        run: Run,
        overlay: Callable[[Path], str | None],
        leave: Callable[[Leftover], None],
    ) -> None:
        self.id = files.id
        self.files = files
        self.cwd = cwd
        self.project = project
        self._fingerprint = loaded.settings.fingerprint()
        self._title = title or ""
        self._created = now()
        self._model = loaded.settings.main.model
        self._subscribers = Subscribers()
        self._journal = Journal(self.id, files.log, self._subscribers)
        self._gate = Gate(self.id, self._tell_proposed, self._tell_decided, self._changed)
        self._requests: dict[str, Request] = {}
        self._by_client: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._place = Place(
            cwd=cwd,
            settings=loaded.settings,
            files=files,
            store=store,
            journal=self._journal,
            bind=bind,
            run=run,
            gate=self._gate.ask,
            overlay=overlay,
            leave=leave,
            start=self._session_start,
            notices=(*loaded.notices, *loaded.without_effect),
        )

    def info(self) -> m.Session:
        return m.Session(
            id=self.id,
            cwd=str(self.cwd),
            project=self.project.name,
            title=self._title,
            created=self._created,
            updated=self._journal.updated,
            requests=len(self._requests),
            model=self._model,
            profile=None,
            state=("waiting" if self._gate.pending() else "running") if self._running() else "idle",
        )

    def start_request(self, params: m.RequestStartParams) -> str:
        """Starts the work and gives its id at once. Raises AerixError request_running and conflict, and BadParams."""
        if params.client_request_id is not None and params.client_request_id in self._by_client:
            return self._by_client[params.client_request_id]
        if self._closed:
            raise AerixError("conflict", f"The session {self.id} is being closed.", "Start a new one, or resume it.")
        if not params.prompt.strip():
            raise BadParams("prompt", "prompt: it is empty; say what is to be done")
        if running := self._running():
            raise AerixError(
                "request_running",
                f"The request {running} of the session {self.id} is still running.",
                "Wait for it or cancel it.",
            )
        request = self._new_request(params)
        task = asyncio.get_running_loop().create_task(self._serve(request), name=f"{self.id} {request.spec.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._changed()
        return request.spec.id

    async def wait(self, request: str) -> m.Outcome:
        """The outcome, once every event of the request is published.

        Raises AerixError not_found, and pool_unavailable or model_refused when no pool could be bound.
        """
        found = self._requests.get(request)
        if found is None:
            raise AerixError("not_found", f"The session {self.id} has no request {request}.")
        outcome = await asyncio.shield(found.done)
        if refused := found.refused:
            raise AerixError(refused.code, refused.message, refused.hint)
        return outcome

    async def cancel(self, request: str) -> bool:
        """False for a request that has ended or was never there."""
        found = self._requests.get(request)
        if found is None or found.done.done():
            return False
        found.cancelled.set()
        return True

    def decide(self, params: m.PlanDecideParams, by: str) -> m.PlanDecideResult:
        """Raises AerixError not_found and stale_version, and BadParams."""
        return self._gate.decide(params, by)

    def pending(self) -> list[m.PendingPlan]:
        return self._gate.pending()

    def last_seq(self) -> int:
        return self._journal.last_seq

    def touched(self, request: str) -> Sequence[str]:
        """What the agents of a request say so far that they wrote."""
        return list(self._requests[request].touched) if request in self._requests else []

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Gives the way to unsubscribe."""
        return self._subscribers.add(subscriber)

    async def close(self, reason: str) -> None:
        """Cancel what runs, write session.end, release the lock. Idempotent; takes at most twice CLOSE_S."""
        if self._closed:
            return
        self._closed = True
        await self._end_running()
        if self._journal.is_open:
            try:
                self._journal.emit(SessionEnd(reason=reason))
            except LogFailed as error:
                _log.warning("%s", error)
            self._journal.close()
            await asyncio.to_thread(refresh_index, self.files.folder)

    async def _end_running(self) -> None:
        for request in self._requests.values():
            request.cancelled.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)

    def _new_request(self, params: m.RequestStartParams) -> Request:
        spec = RequestSpec(
            id=f"r{len(self._requests) + 1}",
            prompt=with_attachments(params.prompt, params.attachments),
            route=params.route,
            max_turns=params.max_turns,
            gate_plan=params.gate_plan,
            output_schema=params.output_schema,
        )
        attachments = [item.model_dump(exclude_none=True) for item in params.attachments]
        request = Request(spec, params.prompt, attachments, asyncio.get_running_loop().create_future())
        self._requests[spec.id] = request
        self._title = self._title or title_of(params.prompt)
        if params.client_request_id is not None:
            self._by_client[params.client_request_id] = spec.id
        return request

    async def _serve(self, request: Request) -> None:
        await serve(request, self._place)
        self._changed()
        if self._journal.is_open:
            await asyncio.to_thread(refresh_index, self.files.folder)

    def _session_start(self, bound: BoundPool | None, taken: Taken) -> SessionStart:
        self._model = bound.main.model if bound else self._model
        return SessionStart(
            id=self.id,
            cwd=str(self.cwd),
            project=self.project.name,
            version=aerix_server.__version__,
            model=self._model,
            member=bound.main.member if bound else "",
            lane=bound.main.lane if bound else "none",
            window=bound.main.window if bound else 0,
            pool=bound.socket if bound else "",
            git=taken.git,
            settings_hash=self._fingerprint,
            source="new",
            title=self._title,
        )

    def _running(self) -> str | None:
        return next((id_ for id_, request in self._requests.items() if not request.done.done()), None)

    def _changed(self) -> None:
        note = m.SessionChanged(session=self.info())
        self._subscribers.tell(lambda subscriber: subscriber.session_changed(note))

    def _tell_proposed(self, note: m.PlanProposed) -> None:
        self._subscribers.tell(lambda subscriber: subscriber.plan_proposed(note))

    def _tell_decided(self, note: m.PlanDecided) -> None:
        self._subscribers.tell(lambda subscriber: subscriber.plan_decided(note))
