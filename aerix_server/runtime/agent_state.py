"""What one agent is made of while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aerix_server.config.settings import Settings
from aerix_server.pool.port import MemberState
from aerix_server.protocol.events import Check, Event, MessageEvent, Usage, UsageEvent
from aerix_server.runtime.bounds import HardLimit, Repeats, TurnBudget
from aerix_server.runtime.compact import turn_tokens
from aerix_server.runtime.context import AgentContext, Draft, Numbers
from aerix_server.runtime.plan import AgentPlan
from aerix_server.runtime.spool import Spool
from aerix_server.tools.base import Tool, ToolContext
from aerix_server.tools.jobs import Jobs


@dataclass
class Agent:
    """One agent.

    `tools` are those it may call, by name; `constraint` is its turns', None where the member knows no Json constraint;
    `structured` tells that its final is a value of a schema, not a text.
    """

    name: str
    member: MemberState
    context: AgentContext
    settings: Settings
    prompts: Mapping[str, str]
    send: Callable[[Event], None]
    spool: Spool
    tools: Mapping[str, Tool[Any]]
    constraint: dict[str, Any] | None
    tool_context: ToolContext
    jobs: Jobs
    plan: AgentPlan
    numbers: Numbers
    budget: TurnBudget
    structured: bool = False
    hard_limit: HardLimit = field(default_factory=HardLimit)
    repeats: Repeats = field(default_factory=Repeats)
    usage: Usage = field(default_factory=Usage)
    files: dict[str, None] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    @property
    def turn_tokens(self) -> int:
        """What a turn asks for, before the room is looked at."""
        return turn_tokens(self.settings.context.max_new_tokens, self.context.window)

    async def tell(self, text: str, label: str = "note") -> None:
        """Append a note to the model, logged as its message and its segment."""
        self.send(MessageEvent(agent=self.name, turn=self.numbers.turns, role="user", text=text))
        await self.context.append(Draft("user", label, text))

    def show_usage(self, usage: Usage | None = None) -> None:
        """The context line: the pool's own count."""
        self.send(UsageEvent(agent=self.name, tokens=self.context.tokens, window=self.context.window, usage=usage))
