"""`aerix/request/*`."""

from __future__ import annotations

from collections.abc import Callable

from pygls.lsp.server import LanguageServer

from aerix_server.lsp.client import Client
from aerix_server.lsp.errors import invalid_params
from aerix_server.lsp.method import method
from aerix_server.lsp.schema_check import schema_fault
from aerix_server.protocol import messages as m


def register(server: LanguageServer, client: Callable[[], Client]) -> None:
    @method(server, "aerix/request/start")
    async def start(params: m.RequestStartParams) -> m.RequestStartResult:
        if params.output_schema is not None and (fault := schema_fault(params.output_schema)):
            raise invalid_params(f"outputSchema: {fault}")
        live = await client().sessions.get(params.session)
        return m.RequestStartResult(request=live.start_request(params))

    @method(server, "aerix/request/wait")
    async def wait(params: m.RequestRef) -> m.Outcome:
        live = await client().sessions.get(params.session)
        try:
            return await live.wait(params.request)
        finally:
            await client().feeds.drained(params.session)

    @method(server, "aerix/request/cancel")
    async def cancel(params: m.RequestRef) -> m.RequestCancelResult:
        live = await client().sessions.get(params.session)
        return m.RequestCancelResult(cancelled=await live.cancel(params.request))
