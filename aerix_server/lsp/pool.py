"""`aerix/pool/status`."""

from __future__ import annotations

from collections.abc import Callable

from pygls.lsp.server import LanguageServer

from aerix_server.lsp.client import Client
from aerix_server.lsp.method import method
from aerix_server.protocol import messages as m


def register(server: LanguageServer, client: Callable[[], Client]) -> None:
    @method(server, "aerix/pool/status")
    async def status(_params: m.Empty) -> m.PoolStatusResult:
        return await client().sessions.pool_status()
