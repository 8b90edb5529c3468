"""The server's process over the double, one for each test."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tests.lsp.lsp_client import LspClient


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LspClient]:
    """A running server that was not initialized."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).parent / "fake_sessions.py"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
    )
    client = LspClient(process)
    yield client
    if process.returncode is None:
        process.kill()
        await process.wait()
    await client.stderr
    client.reading.cancel()
    await asyncio.gather(client.reading, return_exceptions=True)


@pytest.fixture
async def lsp(server: LspClient) -> LspClient:
    """An initialized one."""
    await server.initialize()
    return server
