"""The points of a request at which somebody outside the runtime may look on, object or add to what the model reads.

The runtime knows no hooks. It calls one plain function, `Fire`; what that starts is the caller's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

PointName = Literal[
    "RouteDecision",
    "AgentSpawn",
    "SubagentStart",
    "SubagentStop",
    "Stop",
    "PreToolUse",
    "PostToolUse",
    "Verify",
    "PreCompact",
    "ContextCompact",
]


@dataclass(frozen=True)
class Point:
    """Where a request is. `kind` is the agent type: root, implementer, verifier, or a definition's name.

    `facts` by name: RouteDecision choice, scores; AgentSpawn and SubagentStart brief; Stop and SubagentStop final,
    active (the agent goes on because of an earlier answer); PreToolUse tool, input, call; PostToolUse also text and
    failed; Verify piece, attempt, verdict, reason, checks; PreCompact and ContextCompact before, after (of a
    ContextCompact), target, in tokens.
    """

    name: PointName
    agent: str
    kind: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What was said at a point.

    `block` is a reason: a call is refused, a compaction skipped, an agent that would stop goes on. `end` is a reason
    to end the agent. `input` replaces a call's. `context` is shown to the model.
    """

    block: str | None = None
    end: str | None = None
    input: dict[str, Any] | None = None
    context: str | None = None


NOTHING = Answer()
Fire = Callable[[Point], Awaitable[Answer]]


async def nobody(_point: Point) -> Answer:
    """The port of a request that nobody looks on at."""
    return NOTHING
