"""Delegation over the real pool and the embedded model: what is written is laid down, all else is the real thing."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aerix_server.config.settings import Settings
from aerix_server.pool.port import ContextState, Edit, GenerationItem, GenerationOptions, NewSegment, Pool
from aerix_server.pool.start import bind_pool
from aerix_server.profile.prompts import embedded_prompts
from aerix_server.protocol.events import AgentSpawn, Event, MessageEvent
from aerix_server.runtime.ports import RequestPorts, RequestSpec
from aerix_server.runtime.request import run_request
from tests.e2e.conftest import Home
from tests.runtime.loop_kit import call, final, turn

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]
NAMES = "abcd"
OVERLAP_ROWS = 16 + 8
"""The last pass over a prompt has 16 rows, and the template's marks stand between two segments."""


class LaidDown:
    """The pool, whose model may write one text only: the next of `script` for a mark that stands in its prompt."""

    def __init__(self, pool: Pool, script: dict[str, list[str]]) -> None:
        self._pool = pool
        self._script = script
        self._texts: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    async def create(self, member: str, segments: Sequence[NewSegment]) -> ContextState:
        state = await self._pool.create(member, segments)
        self._texts[state.context] = _users(segments)
        return state

    async def edit(self, context: str, edits: Sequence[Edit]) -> ContextState:
        self._texts[context] += _users([edit.segment for edit in edits if edit.segment])
        return await self._pool.edit(context, edits)

    async def fork(self, context: str, until: str | None = None) -> ContextState:
        state = await self._pool.fork(context, until)
        self._texts[state.context] = ""
        return state

    async def generate(self, context: str, options: GenerationOptions) -> AsyncGenerator[GenerationItem, None]:
        said = next(texts for mark, texts in self._script.items() if mark in self._texts[context]).pop(0)
        only = replace(options, constraint={"kind": "Regex", "pattern": re.escape(said)}, logprobs=False)
        async with aclosing(self._pool.generate(context, only)) as items:
            async for item in items:
                yield item


def _users(segments: Sequence[NewSegment]) -> str:
    return "".join(segment.text for segment in segments if segment.role == "user")


def script() -> dict[str, list[str]]:
    brief, verify = (embedded_prompts()[name].partition("{brief}")[0] for name in ("brief", "verifier"))
    laid: dict[str, list[str]] = {}
    for name in NAMES:
        laid[f"{verify}Write {name}"] = [final({"verdict": "pass", "reason": "seen"})]
        laid[f"{brief}Write {name}"] = [turn(call("write", path=f"{name}.txt", content=name)), final("done")]
    pieces = [call("agent", brief=f"Write {name} into {name}.txt.", check=f"test -f {name}.txt") for name in NAMES]
    return laid | {"Four files.": [turn(*pieces), final("all four")]}


async def test_implementers_resume_from_the_shared_prefix(home: Home, tmp_path: Path) -> None:
    cwd = tmp_path / "work"
    cwd.mkdir()
    caldrix = shlex.join([sys.executable, "-m", "caldrix"])
    settings = Settings.model_validate({"main": {"model": "smollm2-instruct"}})
    settings = settings.model_copy(
        update={"pool": settings.pool.model_copy(update={"socket": str(home.socket), "caldrix": caldrix})}
    )
    events: list[Event] = []
    bound = await bind_pool(settings, lambda _event: None)
    try:
        ports = RequestPorts(
            pool=LaidDown(bound.pool, script()),
            main=bound.main.member,
            decision=bound.main.member,
            settings=settings,
            cwd=cwd,
            emit=events.append,
            spool_dir=tmp_path / "spool",
            cancelled=asyncio.Event(),
            gate=None,
            overlay=lambda _path: None,
            instructions="Write plain text. " * 20,
        )
        result = await run_request(RequestSpec("r1", "Four files.", route="edit"), ports, None)
    finally:
        await bound.pool.aclose()
    assert (result.outcome, result.text) == ("final", "all four"), result.reason
    assert sorted(path.name for path in cwd.iterdir()) == [f"{name}.txt" for name in NAMES]
    firsts: dict[str, MessageEvent] = {}
    for event in events:
        if isinstance(event, MessageEvent) and event.role == "assistant":
            firsts.setdefault(str(event.agent), event)
    shared = _shared_tokens(events)
    kinds = {event.agent: event.kind for event in events if isinstance(event, AgentSpawn)}
    assert sorted(kinds.values()) == ["implementer"] * 4 + ["root"] + ["verifier"] * 4
    for agent, event in firsts.items():
        if kinds[agent] != "root":
            assert event.recomputed_from is not None
            assert event.recomputed_from >= shared - OVERLAP_ROWS, (agent, event.recomputed_from, shared)


def _shared_tokens(events: Sequence[Any]) -> int:
    """Tokens of the root's system and instructions segments."""
    return sum(
        event.tokens
        for event in events
        if event.type == "segment" and event.agent == "a1" and event.label in ("system", "instructions")
    )
