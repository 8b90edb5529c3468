"""A folder with scripts as models, and settings whose pool command starts the real daemon over the toy backend."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from aerix_server.config.settings import Settings
from aerix_server.pool.start import BoundPool, bind_pool
from aerix_server.protocol.events import Notice, ProgressEvent
from caldrix.client.client import PoolClient
from caldrix.protocol.errors import CaldrixError

BOUND_S = 30.0


@dataclass
class Toys:
    folder: Path
    reports: list[ProgressEvent | Notice] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        return self.folder / "p.sock"

    def script(self, name: str, *replies: str, **more: Any) -> str:
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({"replies": list(replies), **more}))
        return str(path)

    def settings(self, model: str, **more: Any) -> Settings:
        pool = {"socket": str(self.socket), "caldrix": f"{sys.executable} -m tests.doubles.toy_caldrix"}
        tree: dict[str, Any] = {"main": {"model": model}, "pool": {**pool, **more.pop("pool", {})}, **more}
        return Settings.model_validate(tree)

    async def bind(self, settings: Settings) -> BoundPool:
        return await bind_pool(settings, self.reports.append)

    async def client(self) -> PoolClient:
        return await PoolClient.connect(self.socket, "tests", timeout=BOUND_S)

    async def stop(self) -> None:
        """Until none is left: a pool that lost the race may still be starting, and serve once the winner is gone."""
        async with asyncio.timeout(BOUND_S):
            while self._served():
                with contextlib.suppress(CaldrixError):
                    async with await self.client() as client:
                        await client.stop()
                await asyncio.sleep(0.05)

    def _served(self) -> bool:
        commands = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
        return any(str(self.socket) in words for words in commands)
