"""Plans that wait for a person: the first decision wins, and nobody decides a version he has not seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aerix_server.protocol.messages import (
    PendingPlan,
    PlanDecided,
    PlanDecideParams,
    PlanDecideResult,
    PlanProposed,
)
from aerix_server.protocol.outcomes import AerixError, BadParams
from aerix_server.runtime.ports import PlanDecision, ProposedPlan


class Gate:
    """The plans of one session. `proposed` and `decided` hear of each, `changed` of each wait that begins or ends."""

    def __init__(
        self,
        session: str,
        proposed: Callable[[PlanProposed], None],
        decided: Callable[[PlanDecided], None],
        changed: Callable[[], None],
    ) -> None:
        self._session = session
        self._proposed = proposed
        self._decided = decided
        self._changed = changed
        self._waiting: dict[str, tuple[PendingPlan, asyncio.Future[PlanDecision]]] = {}
        self._ended: dict[str, tuple[str, str]] = {}

    def pending(self) -> list[PendingPlan]:
        return [plan for plan, _ in self._waiting.values()]

    async def ask(self, request: str, plan: ProposedPlan) -> PlanDecision:
        """Wait for the decision. When the waiting is cancelled, the plan is no longer pending."""
        id_ = f"{request}.{plan.agent}.{plan.version}"
        waiting = PendingPlan(request=request, agent=plan.agent, plan=id_, version=plan.version, text=plan.text)
        future: asyncio.Future[PlanDecision] = asyncio.get_running_loop().create_future()
        self._waiting[id_] = waiting, future
        self._proposed(PlanProposed(session=self._session, **waiting.model_dump()))
        self._changed()
        try:
            return await future
        finally:
            if self._waiting.pop(id_, None):
                self._changed()

    def decide(self, params: PlanDecideParams, by: str) -> PlanDecideResult:
        """Raises AerixError not_found and stale_version, and BadParams for an edit without a text."""
        if params.plan in self._ended:
            first_by, decision = self._ended[params.plan]
            return PlanDecideResult(applied=False, by=first_by, decision=decision)
        plan, future = self._waiting.get(params.plan, (None, None))
        if plan is None or future is None or plan.request != params.request:
            raise AerixError(
                "not_found", f"No plan {params.plan} of the request {params.request} waits for a decision."
            )
        if params.version is not None and params.version != plan.version:
            raise AerixError(
                "stale_version",
                f"The decision is about version {params.version} of the plan; version {plan.version} waits.",
                "Read the present version, then decide.",
            )
        text = params.text if params.decision == "edit" else None
        if params.decision == "edit" and not (text or "").strip():
            raise BadParams("text", "text: the decision edit needs the plan's new text")
        del self._waiting[params.plan]
        self._ended[params.plan] = by, params.decision
        future.set_result(PlanDecision(params.decision, text))
        self._decided(
            PlanDecided(session=self._session, **plan.model_dump(), decision=params.decision, by=by),
        )
        self._changed()
        return PlanDecideResult(applied=True, by=by, decision=params.decision)
