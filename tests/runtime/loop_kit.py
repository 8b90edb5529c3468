"""What the loop's tests share: a request over a scripted pool, its events, and a context rebuilt from them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aerix_server.config.settings import Settings
from aerix_server.protocol.events import ContextOp, Event, MessageEvent, SegmentEvent, dump_event, parse_event
from aerix_server.runtime.points import Fire, nobody
from aerix_server.runtime.ports import (
    Definition,
    PlanDecision,
    ProposedPlan,
    RequestPorts,
    RequestResult,
    RequestSpec,
    RootState,
    SegmentRecord,
)
from aerix_server.runtime.request import run_request
from aerix_server.tools.base import Leftover
from tests.runtime.scripted_pool import ScriptedPool


def call(tool: str, **given: Any) -> dict[str, Any]:
    return {"tool": tool, "input": given}


def turn(*calls: dict[str, Any], thought: str = "next") -> str:
    return json.dumps({"thought": thought, "calls": list(calls)})


def final(text: Any = "done") -> str:
    return json.dumps({"thought": "end", "final": text})


@dataclass
class Kit:
    """One session's worth of requests. `settings` is a tree of settings keys."""

    cwd: Path
    pool: ScriptedPool
    settings: dict[str, Any] = field(default_factory=dict)
    instructions: str = ""
    gate: Callable[[ProposedPlan], Any] | None = None
    events: list[Event] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    on_event: Callable[[Event], None] = lambda _event: None
    requests: int = 0
    definitions: dict[str, Definition] = field(default_factory=dict)
    fire: Fire = nobody
    left: list[Leftover] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        self.on_event(event)
        assert parse_event(dump_event(event)) == event, "an event must survive its log line"
        self.events.append(event)

    def ports(self) -> RequestPorts:
        gate = self.gate

        async def decide(plan: ProposedPlan) -> PlanDecision:
            assert gate is not None
            decided = gate(plan)
            return decided if isinstance(decided, PlanDecision) else await decided

        return RequestPorts(
            pool=self.pool,
            main="main",
            decision="main",
            settings=Settings.model_validate(self.settings),
            cwd=self.cwd,
            emit=self.emit,
            spool_dir=self.cwd.parent / "s.spool",
            cancelled=self.cancelled,
            gate=decide if gate else None,
            overlay=lambda _path: None,
            instructions=self.instructions,
            definitions=self.definitions,
            fire=self.fire,
            leave=self.left.append,
        )

    async def run(self, prompt: str = "Do it.", history: RootState | None = None, **more: Any) -> RequestResult:
        self.requests += 1
        spec = RequestSpec(id=f"r{self.requests}", prompt=prompt, **{"route": "answer", **more})
        return await run_request(spec, self.ports(), history)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def messages(self, role: str) -> list[MessageEvent]:
        return [event for event in self.of(MessageEvent) if event.role == role]

    def results(self) -> list[str]:
        return [event.result.text for event in self.messages("tool") if event.result]

    def notes(self) -> list[str]:
        return [event.text for event in self.messages("user") if event.text]

    def rebuilt(self, agent: str = "a1") -> dict[str, SegmentRecord]:
        """An agent's context from segment and context.op events alone."""
        held: dict[str, SegmentRecord] = {}
        for event in self.events:
            if event.agent != agent:
                continue
            if isinstance(event, SegmentEvent):
                if event.op == "remove":
                    del held[event.id]
                else:
                    held[event.id] = SegmentRecord(event.id, event.role, event.label, event.text or "", event.pinned)
            elif isinstance(event, ContextOp) and event.op in ("pin", "unpin"):
                for id_ in event.ids or []:
                    old = held[id_]
                    held[id_] = SegmentRecord(old.id, old.role, old.label, old.text, event.op == "pin")
        return held

    def root_state(self) -> RootState:
        """As a session would rebuild it for the next request."""
        held = tuple(self.rebuilt().values())
        turns = [event for event in self.of(MessageEvent) if event.agent == "a1"]
        calls = [int(made.id[1:]) for event in turns for made in event.calls or []]
        made = [int(event.id[1:]) for event in self.of(SegmentEvent) if event.agent == "a1"]
        return RootState(held, "", max((event.turn for event in turns), default=0), max(calls, default=0), 0, max(made))
