"""The turn as a Lark grammar: what the schema of a turn allows, with the paths and the `old` of a call held to more.

No lexeme may be the beginning of another that could stand in its place, since a lexer that has gone on with the longer
one does not come back: so each ends with a quote or a bracket that the others do not have there. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aerix_server.config.bounds import CALLS_KEPT, THOUGHT_CHARS
from aerix_server.runtime.lark import json_rule, literal
from aerix_server.runtime.path_grammar import KnownPaths, path_terminals
from aerix_server.runtime.unique_text import unique_terminals

Schema = Mapping[str, Any]

EDIT: Final = "edit"
PATH_TOOLS: Final[Mapping[str, str]] = {"read": "PATHS", EDIT: "FILES", "grep": "PATHS", "glob": "DIRECTORIES"}
"""The tools whose `path` must be there, and the terminal of what it may be."""
_CHARACTER: Final = r'(?:[^"\\\x00-\x1f\x7f]|\\(?:["\\\/bfnrt]|u[0-9a-fA-F]{4}))'
"""Of a JSON string, as it is written."""


@dataclass(frozen=True)
class SeenFile:
    """A file that the agent has read: its path as the tools show it, and its text as it is now, lines ended by \\n."""

    path: str
    text: str


def turn_grammar(
    tools: Mapping[str, Schema],
    final: Schema | None,
    root: str,
    known: KnownPaths | None,
    seen: Sequence[SeenFile] = (),
    stale: str = "",
) -> str:
    """The grammar of a turn that may call `tools` (name → input schema); `final` is the schema of its final.

    `known`: the paths of PATH_TOOLS are among these or outside `root`, the working directory; None leaves them free.
    `seen`: an edit of one of these, where it is known, has an `old` that stands in it exactly once, or `replace_all`
    before an `old` that is then free. `stale`: letters and digits that its thought may not begin with.
    """
    there = [file for file in seen if known is None or file.path in known.files]
    unique = _unique(there) if EDIT in tools else []
    answer = '", \\"final\\": " final'
    rules = [
        _thought(stale),
        json_rule("text", {"type": "string"}),
    ]
    rules.append("final: text" if final is None else json_rule("final", final))
    if tools:
        answer += f' | ", \\"calls\\": [" call (", " call){{0,{CALLS_KEPT - 1}}} "]"'
        rules.append("call: " + " | ".join(f"call{number}" for number in range(len(tools))))
    for number, (name, schema) in enumerate(tools.items()):
        head = literal(f'{{"tool": {json.dumps(name)}, "input": ')
        rules.append(f'call{number}: {head} input{number} "}}"')
        rules += _input_rules(f"input{number}", name, schema, known is not None, len(unique))
    if PATH_TOOLS.keys() & tools.keys():
        rules += path_terminals(root, known, [path for path, _ in unique])
    return "\n".join([f'start: "{{\\"thought\\": " thought ({answer}) "}}"', *rules, *(old for _, old in unique), ""])


def _thought(stale: str) -> str:
    if not stale:
        return json_rule("thought", {"type": "string", "maxLength": THOUGHT_CHARS})
    # Not the complement of a whole beginning: with the bound on its length that is too much for a lexer.
    first = rf'[^"\\\s\x00-\x1f\x7f{stale}]'
    return f'thought: THOUGHT\nTHOUGHT: /"{first}{_CHARACTER}{{0,{THOUGHT_CHARS - 1}}}"/'


def _unique(seen: Sequence[SeenFile]) -> list[tuple[str, str]]:
    """The path of each file with unique parts, and their terminals: U0T of the first, U1T …"""
    found: list[tuple[str, str]] = []
    for file in seen:
        terminals = unique_terminals(file.text, f"U{len(found)}T")
        if terminals is not None:
            found.append((file.path, terminals))
    return found


def _input_rules(rule: str, tool: str, schema: Schema, known: bool, own: int) -> list[str]:
    if tool == EDIT and own:
        return _edit_rules(rule, own)
    if tool in PATH_TOOLS and known:
        return _path_rules(rule, tool, schema)
    return [json_rule(rule, schema)]


def _path_rules(rule: str, tool: str, schema: Schema) -> list[str]:
    """An object with the schema's fields in their order. Its first field must be one that cannot be left out."""
    properties: Mapping[str, Schema] = schema["properties"]
    required = schema.get("required", [])
    parts: list[str] = []
    values: list[str] = []
    for name, inner in properties.items():
        value = f"{rule}_{name}"
        values.append(f"{value}: {PATH_TOOLS[tool]}" if name == "path" else json_rule(value, inner))
        key = literal(f'{", " if parts else "{"}"{name}": ')
        parts.append(f"{key} {value}" if name in required else f"({key} {value})?")
    return [" ".join([f"{rule}:", *parts, '"}"']), *values]


def _edit_rules(rule: str, own: int) -> list[str]:
    """An edit of a file with unique parts, or of another one."""
    old, new, every = (literal(f', "{name}": ') for name in ("old", "new", "replace_all"))
    every_old = literal(', "replace_all": true, "old": ')
    start = literal('{"path": ')
    one = [f"FILE{number} ({old} U{number}T | {every_old} text) {new} text" for number in range(own)]
    other = f'OTHER_FILES {old} text {new} text ({every} ("true" | "false"))?'
    return [f'{rule}: {start} ({" | ".join([*one, other])}) "}}"']
