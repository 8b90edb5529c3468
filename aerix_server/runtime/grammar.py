"""Whether a JSON Schema can constrain a generation, asked before a pool is. Pure; needs no model.

Each tool's input is compiled alone first, so that an error names the tool and the property, not the whole turn.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from llguidance import LLMatcher


class SchemaRefused(Exception):
    """A schema that no grammar can be made of; the message is for the user."""


def check_schema(schema: Mapping[str, Any], what: str) -> None:
    """Raises SchemaRefused naming `what` and, where one property is to blame, its path."""
    problem = _problem(json.dumps(schema))
    if problem is None:
        return
    path, cause = _guilty(schema, problem)
    where = f", property {path!r}" if path else ""
    raise SchemaRefused(f"{what}{where} cannot constrain a generation: {cause}")


def check_tools(schemas: Mapping[str, Mapping[str, Any]]) -> None:
    """`schemas`: tool name → input schema. Raises SchemaRefused for the first bad one."""
    for name, schema in schemas.items():
        check_schema(schema, f"the input schema of the tool {name!r}")


@functools.lru_cache(maxsize=256)
def _problem(schema: str) -> str | None:
    try:
        message = LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(schema))
    except ValueError as error:
        message = str(error)
    return " ".join(message.split()) or None


def _guilty(schema: Mapping[str, Any], problem: str) -> tuple[str, str]:
    """The path of the deepest property that fails alone, and what was said of it."""
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        # A reference means nothing outside its document, so the definitions go along.
        alone = (
            {**inner, **({"$defs": schema["$defs"]} if "$defs" in schema else {})} if isinstance(inner, dict) else {}
        )
        inner_problem = _problem(json.dumps(alone))
        if inner_problem is not None:
            path, cause = _guilty(alone, inner_problem)
            return (f"{name}.{path}" if path else name), cause
    return "", problem
