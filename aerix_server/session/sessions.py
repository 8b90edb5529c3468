"""All sessions of a process, and those on disk that others wrote."""

from __future__ import annotations

import asyncio
import builtins
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aerix_server.config.load import load_settings
from aerix_server.pool.start import bind_pool
from aerix_server.pool.status import pool_status
from aerix_server.protocol import messages as m
from aerix_server.protocol.outcomes import AerixError, BadParams
from aerix_server.runtime.request import run_request
from aerix_server.session.diff_query import find_diff
from aerix_server.session.folders import SessionFiles, checkpoints_folder, find_session, new_id, sessions_folder
from aerix_server.session.index import refresh_index
from aerix_server.session.leftovers import Leftovers
from aerix_server.session.lock import held, locked
from aerix_server.session.log_reader import read_log
from aerix_server.session.project import Project, project_of
from aerix_server.session.session import LiveSession
from aerix_server.session.work import Bind, Run

TRANSCRIPT_EVENTS = 10_000
"""The most events of one answer; `more` tells that there are further ones."""


def _no_overlay(_path: Path) -> str | None:
    return None


class Sessions:
    """`base_settings` is the caller's own layer of settings, nested or with dotted keys. Raises SettingsError early."""

    def __init__(
        self,
        base_settings: dict[str, Any],
        bind: Bind = bind_pool,
        run: Run = run_request,
        overlay: Callable[[Path], str | None] = _no_overlay,
    ) -> None:
        self._base = base_settings
        self._bind = bind
        self._run = run
        self._overlay = overlay
        self._live: dict[str, LiveSession] = {}
        self._leftovers = Leftovers()

    async def new(self, params: m.SessionNewParams) -> LiveSession:
        """Raises BadParams (a cwd that is no folder, wrong settings) and AerixError unsupported."""
        if params.profile is not None:
            raise AerixError("unsupported", "Profiles cannot be chosen yet.", "Leave the profile out.")
        chosen = {} if params.model is None else {"main.model": params.model}
        session = await asyncio.to_thread(self._make, _folder(params.cwd), self._base | chosen, params.title)
        self._live[session.id] = session
        return session

    def _make(self, cwd: Path, overrides: dict[str, Any], title: str | None) -> LiveSession:
        if not cwd.is_dir():
            raise BadParams("cwd", f"cwd: there is no folder {cwd}")
        loaded = load_settings(cwd, overrides, os.environ)
        project = project_of(cwd)
        return LiveSession(
            cwd=cwd,
            project=project,
            files=SessionFiles(_root() / project.key, new_id()),
            store=_store(project),
            loaded=loaded,
            title=title,
            bind=self._bind,
            run=self._run,
            overlay=self._overlay,
            leave=self._leftovers.keep,
        )

    async def list(self, params: m.SessionListParams) -> builtins.list[m.Session]:
        """Newest first: of the folder's project, or of all."""
        project = await asyncio.to_thread(project_of, _folder(params.cwd)) if params.cwd is not None else None
        stored = await asyncio.to_thread(_stored, project)
        live = {id_: session.info() for id_, session in self._live.items() if project in (None, session.project)}
        found = {session.id: session for session in stored} | live
        newest = sorted(found.values(), key=lambda session: (session.updated, session.id), reverse=True)
        return newest[: params.limit]

    async def get(self, session: str) -> LiveSession:
        """A session this process holds. Raises AerixError session_not_found, or session_locked where another does."""
        if session in self._live:
            return self._live[session]
        files = await asyncio.to_thread(find_session, _root(), session)
        if files is not None and held(files.lock):
            raise locked(session, files.lock)
        if files is not None:
            raise AerixError(
                "session_not_found",
                f"The session {session} is not open in this server; its events can be read.",
                "Start a new session to ask for something.",
            )
        raise _not_found(session)

    async def events(self, session: str, after_seq: int) -> builtins.list[dict[str, Any]]:
        """The logged events of any session, live or not. Raises AerixError session_not_found."""
        _, events = await asyncio.to_thread(self._read, session)
        return [event for event in events if event["seq"] > after_seq]

    async def transcript(self, params: m.SessionTranscriptParams) -> m.SessionTranscriptResult:
        """Raises AerixError session_not_found."""
        events = await self.events(params.session, params.after_seq or 0)
        chosen = [event for event in events if params.agent in (None, event.get("agent"))]
        limit = min(params.limit or TRANSCRIPT_EVENTS, TRANSCRIPT_EVENTS)
        return m.SessionTranscriptResult(events=chosen[:limit], more=len(chosen) > limit)

    async def diff(self, params: m.DiffGetParams) -> m.DiffResult:
        """What a request changed (the latest when none is named), or the session since its first one.

        Raises AerixError session_not_found and not_found.
        """
        live = self._live.get(params.session)

        def find() -> m.DiffResult:
            files, events = self._read(params.session)
            return find_diff(params, files, events, _checkpoints(), live.touched if live else lambda _request: ())

        return await asyncio.to_thread(find)

    async def pool_status(self) -> m.PoolStatusResult:
        """Raises SettingsError."""
        loaded = await asyncio.to_thread(load_settings, None, self._base, os.environ)
        return await pool_status(loaded.settings)

    async def close(self, reason: str) -> None:
        """End every session. Takes about as long as the slowest of them."""
        async with asyncio.TaskGroup() as group:
            for session in self._live.values():
                group.create_task(session.close(reason))
        await self._leftovers.gone()

    def _read(self, session: str) -> tuple[SessionFiles, builtins.list[dict[str, Any]]]:
        live = self._live.get(session)
        files = live.files if live else find_session(_root(), session)
        if files is None:
            raise _not_found(session)
        try:
            return files, read_log(files.log).events
        except FileNotFoundError:
            if live:
                return files, []
            raise _not_found(session) from None


def _folder(path: str) -> Path:
    return Path(os.path.normpath(path))


def _root() -> Path:
    return sessions_folder(os.environ)


def _checkpoints() -> Path:
    return checkpoints_folder(os.environ)


def _store(project: Project) -> Path:
    return _checkpoints() / project.key / "objects"


def _stored(project: Project | None) -> builtins.list[m.Session]:
    root = _root()
    folders = [root / project.key] if project else sorted(root.glob("*"))
    return [session for folder in folders if folder.is_dir() for session in refresh_index(folder)]


def _not_found(session: str) -> AerixError:
    return AerixError("session_not_found", f"There is no session {session}.", "`aerix sessions list` shows them.")
