"""What one agent is made of while it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aerix_server.config.settings import Settings
from aerix_server.pool.port import MemberState
from aerix_server.protocol.events import Check, Doubt, Event, MessageEvent, Usage, UsageEvent
from aerix_server.runtime.bounds import HardLimit, Repeats, TurnBudget
from aerix_server.runtime.compact import turn_tokens
from aerix_server.runtime.context import AgentContext, Draft, Numbers
from aerix_server.runtime.looks import Looks
from aerix_server.runtime.plan import AgentPlan
from aerix_server.runtime.points import Answer, Fire, Point, PointName
from aerix_server.runtime.ports import Ended
from aerix_server.runtime.spool import Spool
from aerix_server.tools.base import Leftover, Tool, ToolContext
from aerix_server.tools.jobs import Jobs

ROOT_KIND: Final = "root"
THOUGHTS_KEPT: Final = 4


@dataclass
class Agent:
    """One agent.

    `kind` is root, implementer, verifier or a definition's name. `tools` are those it may call, by name; `constraint`
    is its turns', None where the member knows no Json constraint; `final_schema` is that of its final where that is
    a value, not a text. `continues` counts how often it was told to go on after a final; `changes_due` tells that it is
    to change files and was not yet asked whether it did. `doubts` are of the calls under way, `thoughts` of the latest
    turns. `withheld` are tools that it may not call until it has done something new, so that it takes another course.
    """

    name: str
    kind: str
    depth: int
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
    fire_port: Fire
    leave: Callable[[Leftover], None]
    final_schema: dict[str, Any] | None = None
    continues: int = 0
    changes_due: bool = False
    doubts: tuple[Doubt, ...] = ()
    withheld: set[str] = field(default_factory=set)
    thoughts: deque[str] = field(default_factory=lambda: deque(maxlen=THOUGHTS_KEPT))
    hard_limit: HardLimit = field(default_factory=HardLimit)
    repeats: Repeats = field(default_factory=Repeats)
    looks: Looks = field(default_factory=Looks)
    usage: Usage = field(default_factory=Usage)
    files: dict[str, None] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    @property
    def offered(self) -> Mapping[str, Tool[Any]]:
        """The tools that the next turn may call; all, where none would be left."""
        left = {name: tool for name, tool in self.tools.items() if name not in self.withheld | self._answered}
        return left or self.tools

    @property
    def _answered(self) -> set[str]:
        """Tools without any input whose one answer stands in the context."""
        if not self.settings.assist.change_course:
            return set()
        asked = [name for name, tool in self.tools.items() if tool.only_looks and not tool.schema().get("properties")]
        return {name for name in asked if self.looks.stands(name, self.context.segments)}

    @property
    def structured(self) -> bool:
        """Whether its final is a value of a schema, not a text."""
        return self.final_schema is not None

    @property
    def is_root(self) -> bool:
        return self.depth == 0 and self.kind == ROOT_KIND

    @property
    def turn_tokens(self) -> int:
        """What a turn asks for, before the room is looked at."""
        return turn_tokens(self.settings.context.max_new_tokens, self.context.window)

    async def tell(self, text: str, label: str = "note") -> None:
        """Append a note to the model, logged as its message and its segment."""
        self.send(MessageEvent(agent=self.name, turn=self.numbers.turns, role="user", text=text))
        await self.context.append(Draft("user", label, text))

    async def fire(self, name: PointName, **facts: Any) -> Answer:
        """Tell of a point. Raises Ended when the answer ends this agent."""
        answer = await self.fire_port(Point(name, self.name, self.kind, facts))
        if answer.end is not None:
            raise Ended("refused", f"{name} ended the agent {self.name}: {answer.end}")
        return answer

    def show_usage(self, usage: Usage | None = None) -> None:
        """The context line: the pool's own count, of the root only."""
        if not self.is_root:
            return
        self.send(UsageEvent(agent=self.name, tokens=self.context.tokens, window=self.context.window, usage=usage))
