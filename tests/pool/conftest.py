"""A folder of toy models, and no pool left when the test is over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.pool.toy_pools import Toys


@pytest.fixture
async def toys(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Toys]:
    folder = tmp_path_factory.mktemp("t")
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    toys = Toys(folder)
    yield toys
    await toys.stop()
