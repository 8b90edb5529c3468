"""The agent's plan: the port the plan tool writes through, and the gate before the first write of a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aerix_server.protocol.events import Event, PlanEvent
from aerix_server.runtime.ports import PlanDecision, ProposedPlan
from aerix_server.tools.base import Refusal

Gate = Callable[[ProposedPlan], Awaitable[PlanDecision]]


class AgentPlan:
    """A plan port. With a gate the first write waits for the user, and an abort ends the request as cancelled."""

    def __init__(self, agent: str, send: Callable[[Event], None], text: str = "", gate: Gate | None = None) -> None:
        self._agent = agent
        self._send = send
        self._gate = gate
        self._writes = 0
        self.text = text
        self.aborted = False

    async def read(self) -> str:
        self._send(PlanEvent(agent=self._agent, op="read", text=self.text, gated=False))
        return self.text

    async def write(self, text: str) -> str:
        """The text that stands: the user's where he edited it. Raises Refusal when he aborted."""
        self._writes += 1
        if self._gate is None or self._writes > 1:
            self.text = text
            self._send(PlanEvent(agent=self._agent, op="write", text=text, gated=False))
            return text
        decided = await self._gate(ProposedPlan(self._agent, text, self._writes))
        stands = decided.text if decided.decision == "edit" and decided.text is not None else text
        self._send(PlanEvent(agent=self._agent, op="write", text=stands, gated=True, decision=decided.decision))
        if decided.decision == "abort":
            self.aborted = True
            raise Refusal("the user aborted the plan")
        self.text = stands
        return stands
