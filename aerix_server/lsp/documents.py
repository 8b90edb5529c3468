"""Document sync → the buffers. pygls keeps the texts; here is only what is unsaved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from aerix_server.lsp.buffers import Buffers, file_path, look_at_file

Spawn = Callable[[Coroutine[Any, Any, None]], object]


def register(server: LanguageServer, buffers: Buffers, spawn: Spawn) -> None:
    versions: dict[str, int] = {}  # of the open documents; pygls keys its own by another spelling of the URI

    async def compare(path: str, document: types.TextDocumentItem) -> None:
        real, differs = await asyncio.to_thread(look_at_file, path, document.text)
        if document.uri not in versions:
            return  # closed meanwhile
        buffers.same_file(document.uri, real)
        if differs and versions[document.uri] == document.version:
            buffers.changed(document.uri, document.text)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        versions[document.uri] = document.version
        if path := file_path(document.uri):
            spawn(compare(path, document))

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        uri = params.text_document.uri
        versions[uri] = params.text_document.version
        buffers.changed(uri, server.workspace.get_text_document(uri).source)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(params: types.DidSaveTextDocumentParams) -> None:
        buffers.saved(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        versions.pop(params.text_document.uri, None)
        buffers.closed(params.text_document.uri)
