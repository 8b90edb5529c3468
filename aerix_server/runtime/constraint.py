"""The constraint that an agent's turns are decoded under: the same for all, or with the help that its settings ask."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Any, Final

from aerix_server.config.bounds import KNOWN_PATHS_S
from aerix_server.pool.port import MemberState
from aerix_server.protocol.events import Notice
from aerix_server.runtime import grammar
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.known_paths import TooManyPaths, known_paths
from aerix_server.runtime.path_grammar import KnownPaths
from aerix_server.runtime.ports import Ended
from aerix_server.runtime.seen_files import seen_files
from aerix_server.runtime.turn import turn_schema
from aerix_server.runtime.turn_grammar import EDIT, PATH_TOOLS, turn_grammar
from aerix_server.tools.base import Tool, ToolContext, ToolError
from aerix_server.tools.names import escape_name

REASON_CHARS: Final = 160
"""Of a refusal that is shown: it may quote the whole grammar."""
_FREE_PATHS: Final = "assist.known_paths"
_PLAIN: Final = "assist"
"""Keys of what a request's agents share: a help that was given up, so that it is told once and not tried again."""


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


async def constraint_for(agent: Agent) -> dict[str, Any] | None:
    """The constraint of the next turn: with the help of the settings `assist`, from the files as they are now.

    A call of a turn is not yet done when the next one is written: what it changes counts from the next turn on.
    """
    if agent.constraint is None:
        return None
    if "Lark" not in agent.member.constraints or _PLAIN in agent.tool_context.cache:
        return plain_constraint(agent)
    known = await _known(agent)
    helped = await asyncio.to_thread(_grammar, agent, known)
    return plain_constraint(agent) if helped is None else {"kind": "Lark", "grammar": helped}


def plain_constraint(agent: Agent) -> dict[str, Any] | None:
    """Without help: of all its tools, or of those that are offered now."""
    offered = agent.offered
    if len(offered) == len(agent.tools):
        return agent.constraint
    return turn_constraint(agent.member, offered, agent.final_schema)


def _grammar(agent: Agent, known: KnownPaths | None) -> str | None:
    """None where there is no help to give."""
    context = agent.tool_context
    unique = agent.settings.assist.unique_old and EDIT in agent.offered
    seen = seen_files(tuple(context.views.seen), context) if unique else []
    stale = _stale(agent)
    if known is None and not seen and not stale:
        return None
    schemas = {name: tool.schema() for name, tool in agent.offered.items()}
    return turn_grammar(schemas, agent.final_schema, escape_name(os.fspath(context.cwd)), known, seen, stale)


def _stale(agent: Agent) -> str:
    """What the latest thoughts began with, where another course is due: a model that goes round copies its thought, and
    another first word is another thought."""
    if not agent.withheld:
        return ""
    first = {thought[0] for thought in agent.thoughts if thought[:1].isalnum()}
    return "".join(sorted({letter for one in first for letter in (one.lower(), one.upper()) if len(letter) == 1}))


async def _known(agent: Agent) -> KnownPaths | None:
    needed = agent.settings.assist.known_paths and PATH_TOOLS.keys() & agent.offered.keys()
    if not needed or _FREE_PATHS in agent.tool_context.cache:
        return None
    try:
        return await asyncio.to_thread(_look, agent.tool_context)
    except (TooManyPaths, ToolError) as error:
        why = str(error) if isinstance(error, TooManyPaths) else f"they could not be found in {KNOWN_PATHS_S:g} s"
        _give_up(agent, _FREE_PATHS, f"paths are not held to what is there (assist.known_paths): {why}")
        return None


def _look(context: ToolContext) -> KnownPaths:
    end = time.monotonic() + KNOWN_PATHS_S
    return known_paths(context.cwd, lambda: time.monotonic() > end or context.cancelled.is_set())


def give_up_help(agent: Agent, refused: str) -> None:
    """The pool refused the constraint with the help in it: go on without, for this request, and tell so once."""
    _give_up(agent, _PLAIN, f"the turns go on without the help of assist.*: {refused[:REASON_CHARS]}")


def _give_up(agent: Agent, key: str, told: str) -> None:
    if key not in agent.tool_context.cache:
        agent.tool_context.cache[key] = True
        agent.send(Notice(level="info", text=told))
