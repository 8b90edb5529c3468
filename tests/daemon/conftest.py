"""A pool on a private socket in this process."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from caldrix.daemon.options import LoadSpec, PoolOptions
from tests.daemon.daemon_pool import Served, served
from tests.daemon.fake_engine import FakeLoader


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="cx"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def options(folder: Path) -> PoolOptions:
    return PoolOptions(
        socket=folder / "p.sock", loads=(LoadSpec("fake", "main"),), idle_timeout_s=0.0, log=folder / "pool.log"
    )


@pytest.fixture
async def pool(options: PoolOptions) -> AsyncIterator[Served]:
    async with served(options, FakeLoader()) as running:
        yield running


@pytest.fixture
def vary(options: PoolOptions) -> Callable[..., contextlib.AbstractAsyncContextManager[Served]]:
    """A pool with other options: `async with vary(idle_timeout_s=1) as pool`."""

    def start(loader: FakeLoader | None = None, **changes: object) -> contextlib.AbstractAsyncContextManager[Served]:
        return served(replace(options, **changes), loader or FakeLoader())  # type: ignore[arg-type]

    return start
