"""`aerix/session/*`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from pygls.lsp.server import LanguageServer

from aerix_server.lsp.client import Client
from aerix_server.lsp.errors import invalid_params
from aerix_server.lsp.method import method
from aerix_server.protocol import messages as m


def register(server: LanguageServer, client: Callable[[], Client]) -> None:
    @method(server, "aerix/session/new")
    async def new(params: m.SessionNewParams) -> m.SessionResult:
        if not await asyncio.to_thread(Path(params.cwd).is_dir):
            raise invalid_params(f"cwd: there is no folder {params.cwd}")
        live = await client().sessions.new(params)
        client().feeds.attach(live, after_seq=None)
        return m.SessionResult(session=live.info())

    @method(server, "aerix/session/list")
    async def list_sessions(params: m.SessionListParams) -> m.SessionListResult:
        return m.SessionListResult(sessions=await client().sessions.list(params))

    @method(server, "aerix/session/attach")
    async def attach(params: m.SessionAttachParams) -> m.SessionAttachResult:
        live = await client().live_or_none(params.session)
        if live is not None:
            client().feeds.attach(live, params.after_seq, params.deltas)
            return m.SessionAttachResult(seq=live.last_seq(), pending=live.pending())
        stored = await client().sessions.events(params.session, 0)
        last = stored[-1]["seq"] if stored else 0
        client().feeds.attach_stored(params.session, last, params.after_seq, params.deltas)
        return m.SessionAttachResult(seq=last, pending=[])

    @method(server, "aerix/session/detach")
    async def detach(params: m.SessionDetachParams) -> m.Empty:
        client().feeds.detach(params.session)
        return m.Empty()

    @method(server, "aerix/session/transcript")
    async def transcript(params: m.SessionTranscriptParams) -> m.SessionTranscriptResult:
        return await client().sessions.transcript(params)
