"""One connected client: who it is, the sessions it may ask for, what it has attached to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aerix_server.lsp.ports import LivePort, SessionsPort
from aerix_server.lsp.publish import Feeds
from aerix_server.protocol import messages as m
from aerix_server.protocol.outcomes import AerixError


@dataclass(frozen=True)
class Client:
    """Made by `initialize`. Handlers are registered before, so they get it through a function."""

    options: m.AerixOptions
    sessions: SessionsPort
    feeds: Feeds

    @property
    def name(self) -> str:
        return self.options.client.name

    async def live_or_none(self, session: str) -> LivePort | None:
        """The session if this process holds it; None for one that lies on disk, whoever writes it."""
        try:
            return await self.sessions.get(session)
        except AerixError as error:
            if error.code not in ("session_not_found", "session_locked"):
                raise
            return None


def options_of(initialization_options: Any) -> Any:
    """The `aerix` part of the initialization options; a client that says nothing of itself gets defaults."""
    given = initialization_options if isinstance(initialization_options, dict) else {}
    aerix = given.get("aerix")
    return {"client": {"name": "unknown", "version": ""}} if aerix is None else aerix
