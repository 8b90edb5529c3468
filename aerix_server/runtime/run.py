"""What all agents of one request share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aerix_server.protocol.events import Event, Usage
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.context import Draft
from aerix_server.runtime.ports import Ended, RequestPorts, RequestSpec
from aerix_server.tools.base import Tool
from aerix_server.tools.shared import SharedFiles


@dataclass
class Run:
    """A request under way. `tools` is the whole registry, by name; `routing` what choosing the route took.

    `agents` are all that were made so far; `openings` the first segments of a context by member, which
    who holds `choosing` adds; `cache` is the tools'.
    """

    spec: RequestSpec
    ports: RequestPorts
    prompts: Mapping[str, str]
    tools: Mapping[str, Tool[Any]]
    routing: Usage = field(default_factory=Usage)
    agents: list[Agent] = field(default_factory=list)
    openings: dict[str, list[Draft]] = field(default_factory=dict)
    choosing: asyncio.Lock = field(default_factory=asyncio.Lock)
    shared: SharedFiles = field(default_factory=SharedFiles)
    cache: dict[str, Any] = field(default_factory=dict)

    @property
    def usage(self) -> Usage:
        """Of every generation so far."""
        return sum((agent.usage for agent in self.agents), self.routing)

    def send(self, event: Event) -> None:
        """Emit with the request's id. Raises Ended when the log cannot be written."""
        try:
            self.ports.emit(event.model_copy(update={"request": self.spec.id}))
        except OSError as error:
            raise Ended("failed", f"the session log could not be written: {error}") from error
