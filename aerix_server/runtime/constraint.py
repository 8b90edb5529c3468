"""The constraint that an agent's turns are decoded under."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aerix_server.pool.port import MemberState
from aerix_server.runtime import grammar
from aerix_server.runtime.ports import Ended
from aerix_server.runtime.turn import turn_schema
from aerix_server.tools.base import Tool


def turn_constraint(
    member: MemberState, tools: Mapping[str, Tool[Any]], final: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The turns' constraint, each schema compiled alone first; None where the member knows no Json constraint.

    Raises Ended naming what cannot be compiled.
    """
    if "Json" not in member.constraints:
        return None
    schemas = {name: tool.schema() for name, tool in tools.items()}
    try:
        grammar.check_tools(schemas)
        if final is not None:
            grammar.check_schema(final, "the output schema")
        schema = turn_schema(schemas, final)
        grammar.check_schema(schema, "the schema of a turn")
    except grammar.SchemaRefused as error:
        raise Ended("failed", str(error)) from error
    return {"kind": "Json", "schema": schema}
