"""The texts a context starts with. Pure. What never changes stands first, for the pool's prefix store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aerix_server.config.bounds import CALLS_KEPT, THOUGHT_CHARS
from aerix_server.profile.prompts import fill
from aerix_server.protocol.events import Route
from aerix_server.runtime.context import Draft
from aerix_server.tools.base import Tool

PLANNER_ROUTES: Final = frozenset({"edit", "plan"})
DELEGATE: Final = "agent"

TURNS: Final = f"""# Turns

Answer every turn with one JSON object and nothing else, in one of two forms. To call tools:
{{"thought": "<what you know and what is next>", "calls": [{{"tool": "<tool>", "input": {{"<field>": "<value>"}}}}]}}
To end, once the work is done or the question answered:
{{"thought": "<why this is the end>", "final": "<the answer to the user>"}}

A thought has at most {THOUGHT_CHARS} characters, a turn 1 to {CALLS_KEPT} calls. They run in order. \
Each result comes back headed [<tool> <call id>]; it begins with "error: " when the call failed and "refused: " when \
it was not allowed. A long result ends with a line that tells how to read the rest. \
You know a result only after it has come back."""


def opening(
    prompts: Mapping[str, str], tools: Sequence[Tool[Any]], cwd: Path, instructions: str, *, brief: bool
) -> list[Draft]:
    """The shared start of every agent's context: the system segment and, where there are any, the instructions.

    `brief`: of each tool one sentence, and of its fields their types only.
    """
    system = "\n\n".join(
        [prompts["system"], TURNS, tool_list(tools, brief=brief), f"# Environment\n\nWorking directory: {cwd}"]
    )
    drafts = [Draft("system", "system", system)]
    if instructions.strip():
        drafts.append(Draft("system", "instructions", f"# Instructions\n\n{instructions.strip()}"))
    return drafts


def tool_list(tools: Sequence[Tool[Any]], *, brief: bool = False) -> str:
    """The `# Tools` section: each tool's input and description."""
    return "\n".join(["# Tools", "", *(_tool(tool, not brief) for tool in tools)])


def request_text(
    prompt: str, prompts: Mapping[str, str], planner_tools: Sequence[str], final: Mapping[str, Any] | None
) -> str:
    """The prompt segment: the request, the note of a planner, and the schema of its final where there is one."""
    parts = [prompt]
    if planner_tools:
        parts.append(fill(prompts["planner"], {"tools": ", ".join(planner_tools)}))
    if final is not None:
        parts.append(f"Your final is not a text but a JSON value of this schema: {json.dumps(final)}")
    return "\n\n".join(parts)


def planner_tools(route: Route, names: Sequence[str], settings: Sequence[str]) -> list[str]:
    """What the root may call where it only plans; empty where it may call everything.

    Where it may not delegate a planner could have nothing done, so then nobody is restricted.
    """
    if route not in PLANNER_ROUTES or DELEGATE not in names or DELEGATE not in settings:
        return []
    return [name for name in names if name in settings]


def may_delegate(tools: Mapping[str, Tool[Any]], depth: int, deepest: int) -> dict[str, Tool[Any]]:
    """The tools of an agent at a depth: without `agent` where nobody deeper may be asked."""
    return {name: tool for name, tool in tools.items() if name != DELEGATE or depth < deepest}


def _tool(tool: Tool[Any], full: bool) -> str:
    schema = tool.input_schema()
    required = schema.get("required", [])
    properties: dict[str, Any] = schema.get("properties", {})
    fields = ", ".join(f"{name}{'' if name in required else '?'}: {_type(inner)}" for name, inner in properties.items())
    line = f"- {tool.name}({fields}): {tool.description if full else _first_sentence(tool.description)}"
    described = [f"  - {name}: {inner['description']}" for name, inner in properties.items() if "description" in inner]
    return "\n".join([line, *described]) if full else line


def _type(schema: Mapping[str, Any]) -> str:
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return "|".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return "|".join(_type(inner) for inner in schema["anyOf"] if inner.get("type") != "null")
    if schema.get("type") == "array":
        return f"[{_type(schema.get('items', {}))}]"
    return str(schema.get("type", "any"))


def _first_sentence(text: str) -> str:
    first = " ".join(text.split())
    return first.split(". ")[0].rstrip(".") + "."
