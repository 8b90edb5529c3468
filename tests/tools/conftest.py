"""A tool's context over a real folder, with the two ports that the runtime supplies kept in plain lists."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aerix_server.config.settings import Settings
from aerix_server.protocol.events import JobEvent
from aerix_server.tools.base import Output, Refusal, ToolContext, ToolError, Views
from aerix_server.tools.jobs import Jobs
from aerix_server.tools.registry import parse_input, registry


@dataclass
class ListedPlan:
    """A plan port; `edited` is what the user makes of a plan, `aborted` refuses it."""

    text: str = ""
    edited: str | None = None
    aborted: bool = False

    async def read(self) -> str:
        return self.text

    async def write(self, text: str) -> str:
        if self.aborted:
            raise Refusal("the user aborted the plan")
        self.text = self.edited or text
        return self.text


@dataclass
class ListedContext:
    """A context port that writes down what it was asked."""

    asked: list[Any] = field(default_factory=list)

    async def status(self) -> str:
        self.asked.append("status")
        return "s1 system 12 pinned"

    async def drop(self, ids: list[str]) -> str:
        self.asked.append(("drop", ids))
        return "dropped"

    async def summarize(self, ids: list[str], text: str) -> str:
        self.asked.append(("summarize", ids, text))
        return "summarized"

    async def pin(self, ids: list[str], pinned: bool) -> str:
        self.asked.append(("pin", ids, pinned))
        return "pinned"

    async def note(self, text: str) -> str:
        self.asked.append(("note", text))
        return "noted"


@dataclass
class Bench:
    """One agent's tools over a folder. `call` runs a tool as the runtime does and gives its output."""

    cwd: Path
    ctx: ToolContext
    jobs: Jobs
    events: list[JobEvent]
    plan: ListedPlan
    context: ListedContext
    unsaved: dict[Path, str]

    async def call(self, tool: str, /, **fields: Any) -> Output:
        chosen = registry()[tool]
        return await chosen.run(parse_input(chosen, fields), self.ctx)

    async def text(self, tool: str, /, **fields: Any) -> str:
        return (await self.call(tool, **fields)).text

    async def error(self, tool: str, /, **fields: Any) -> str:
        with pytest.raises(ToolError) as caught:
            await self.call(tool, **fields)
        return str(caught.value)

    async def refusal(self, tool: str, /, **fields: Any) -> str:
        with pytest.raises(Refusal) as caught:
            await self.call(tool, **fields)
        return str(caught.value)

    def put(self, name: str, content: str | bytes = "") -> Path:
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


def make_bench(cwd: Path, spool_dir: Path) -> Bench:
    events: list[JobEvent] = []
    unsaved: dict[Path, str] = {}
    jobs = Jobs("a1", cwd, spool_dir, events.append)
    plan, context = ListedPlan(), ListedContext()
    ctx = ToolContext(
        cwd=cwd,
        settings=Settings(),
        cancelled=asyncio.Event(),
        views=Views(),
        spool_dir=spool_dir,
        plan=plan,
        context=context,
        jobs=jobs,
        cache={},
        overlay=unsaved.get,
    )
    return Bench(cwd, ctx, jobs, events, plan, context, unsaved)


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    cwd = tmp_path / "work"
    cwd.mkdir()
    made = make_bench(cwd, tmp_path / "spool")
    yield made
    assert await made.jobs.kill_all() == ([], [])


@pytest.fixture
def git() -> Callable[..., None]:
    """Runs git in a folder as a user without any configuration of their own."""

    def run(folder: Path, *arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)

    return run


@pytest_asyncio.fixture
async def repository(bench: Bench, git: Callable[..., None]) -> Bench:
    """The bench in a fresh git repository."""
    git(bench.cwd, "init", "-q")
    return bench
