"""plan: reads or replaces this agent's plan."""

from __future__ import annotations

from typing import Literal

from aerix_server.tools.base import Output, Tool, ToolContext, ToolError, ToolInput


class PlanInput(ToolInput):
    op: Literal["read", "write"]
    text: str | None = None


class Plan(Tool[PlanInput]):
    name = "plan"
    description = "Reads your plan, or replaces all of it with text."
    input_model = PlanInput

    async def run(self, call: PlanInput, ctx: ToolContext) -> Output:
        if call.op == "read":
            return Output(await ctx.plan.read() or "[the plan is empty]")
        if call.text is None or not call.text.strip():
            raise ToolError("text is missing: op write needs the whole new plan", "Give the whole plan as text.")
        stands = await ctx.plan.write(call.text)
        if stands != call.text:
            return Output(f"the user edited the plan; it now reads:\n{stands}")
        return Output("plan written; nothing of it is done yet: carry it out")
