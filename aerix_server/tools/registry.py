"""Every tool by its name, and the one way from a model's raw input to a tool's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from aerix_server.tools.agent import AgentTool
from aerix_server.tools.base import Tool, ToolError, ToolInput
from aerix_server.tools.bash import Bash
from aerix_server.tools.context import Context
from aerix_server.tools.edit import Edit
from aerix_server.tools.glob import Glob
from aerix_server.tools.grep import Grep
from aerix_server.tools.plan import Plan
from aerix_server.tools.read import Read
from aerix_server.tools.repo_map import RepoMap
from aerix_server.tools.skill import Skill
from aerix_server.tools.web import WebFetch, WebSearch
from aerix_server.tools.write import Write


def registry(definitions: Mapping[str, str] | None = None, members: Sequence[str] = ()) -> dict[str, Tool[Any]]:
    """Name → tool, in the order in which the model is told of them.

    `definitions` of agents (name → when to use it) and `members` (loaded models) are what work can be given to.
    """
    tools: list[Tool[Any]] = [
        Read(),
        Write(),
        Edit(),
        Bash(),
        Glob(),
        Grep(),
        RepoMap(),
        Plan(),
        Context(),
        AgentTool(definitions or {}, members),
        Skill(),
        WebFetch(),
        WebSearch(),
    ]
    return {tool.name: tool for tool in tools}


def parse_input(tool: Tool[Any], raw: Any) -> ToolInput:
    """The tool's input. Raises ToolError with one sentence for each field that is wrong."""
    if not isinstance(raw, dict):
        told = f"the input of {tool.name} must be an object, not {_given(raw)}"
        raise ToolError(told, _call_again(tool))
    try:
        parsed: ToolInput = tool.input_model.model_validate(raw)
    except ValidationError as error:
        told = "; ".join(_sentence(tool, detail) for detail in error.errors())
        raise ToolError(told, _call_again(tool)) from error
    return parsed


def _call_again(tool: Tool[Any]) -> str:
    """The call as it must be, field by field."""
    schema = tool.schema()
    required = schema.get("required", [])
    fields = [
        f"{name} ({_wanted(field)}{'' if name in required else ', may be left out'})"
        for name, field in schema.get("properties", {}).items()
    ]
    return f"Call {tool.name} again with " + (", ".join(fields) if fields else "an empty input") + "."


def _sentence(tool: Tool[Any], detail: ErrorDetails) -> str:
    schema = tool.schema()
    properties: dict[str, Any] = schema.get("properties", {})
    path = detail["loc"]
    name = _path_text(path)
    wanted = _wanted(_schema_at(properties, path))
    match detail["type"]:
        case "missing":
            return f"{name} is missing: it must be {wanted}"
        case "extra_forbidden":
            taken = f"{tool.name} takes {', '.join(properties)}" if properties else f"{tool.name} takes no input"
            return f"unknown field {name}: {taken}"
        case "greater_than_equal" | "less_than_equal":
            edge = detail["ctx"]
            limit = f"at least {edge['ge']}" if "ge" in edge else f"at most {edge['le']}"
            return f"{name} must be {limit}, not {_shown(detail['input'])}"
        case "string_too_long":
            return f"{name} must have at most {detail['ctx']['max_length']} characters, not {len(detail['input'])}"
        case "string_unicode":
            return f"{name} holds half of a surrogate pair, which is no character"
        case "literal_error" if isinstance(detail["input"], str):
            return f"{name} must be {wanted}, not {_shown(detail['input'])}"
        case _:
            return f"{name} must be {wanted}, not {_given(detail['input'])}"


def _path_text(path: tuple[int | str, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else str(step) for step in path)


def _schema_at(properties: dict[str, Any], path: tuple[int | str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = properties.get(str(path[0]), {})
    for _ in path[1:]:
        found = found.get("items", {})
    return found


_TYPE_NAMES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


def _wanted(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(schema["enum"])
    if schema.get("type") == "array":
        items = schema.get("items", {}).get("type")
        return "a list of " + (f"{items}s" if items else "values")
    return _TYPE_NAMES.get(schema.get("type", ""), "another type")


def _given(value: Any) -> str:
    """The JSON type of a value, with the value itself where that is short and tells more."""
    match value:
        case None:
            return "null"
        case bool():
            return json.dumps(value)
        case int() | float():
            return f"the number {_shown(value)}"
        case str():
            return f"a string ({_shown(value)})"
        case list():
            return "a list"
        case _:
            return "an object"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
