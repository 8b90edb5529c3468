"""agent: gives one piece of work to another agent, which is checked by a third."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aerix_server.tools.base import Name, Output, Tool, ToolContext, ToolInput


class AgentInput(ToolInput):
    brief: str
    """everything the agent must know: paths, what to change, what must hold; it sees nothing else"""
    check: str
    """how to prove that it is done, best a command"""
    definition: Name | None = None
    member: Name | None = None


class AgentTool(Tool[AgentInput]):
    """`definitions`: name → when to use it. `members`: names of the loaded models. A choice of none is not offered."""

    name = "agent"
    description = (
        "Gives a piece of work to an agent with its own context; another one verifies it. Gives a JSON object: "
        "outcome, summary, files_touched, checks_run. Several calls in one turn run at once: give each its own files."
    )
    input_model = AgentInput
    at_the_end = True

    def __init__(self, definitions: Mapping[str, str], members: Sequence[str]) -> None:
        self._choices = {
            "definition": tuple(definitions),
            "member": tuple(members) if len(members) > 1 else (),
        }
        told = "".join(f"\n  - definition {name}: {text}" for name, text in definitions.items())
        self.description = f"{type(self).description}{told}"

    async def run(self, call: AgentInput, ctx: ToolContext) -> Output:
        return await ctx.pieces.run(ctx.call, call.brief, call.check, call.definition, call.member)

    def input_schema(self) -> dict[str, Any]:
        schema = super().input_schema()
        properties = dict(schema["properties"])
        for name, choices in self._choices.items():
            if choices:
                properties[name] = {"type": "string", "enum": list(choices)}
            else:
                del properties[name]
        return {**schema, "properties": properties}
