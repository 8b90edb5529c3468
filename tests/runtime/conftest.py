"""A working directory and a kit for one session's requests over a scripted pool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.loop_kit import Kit
from tests.runtime.scripted_pool import ScriptedPool, Step


@pytest.fixture
def kit(tmp_path: Path) -> Callable[..., Kit]:
    cwd = tmp_path / "work"
    cwd.mkdir()

    def make(*script: Step, settings: dict[str, Any] | None = None, **pool: Any) -> Kit:
        return Kit(cwd, ScriptedPool(list(script), **pool), settings or {})

    return make
