"""The turn: one JSON object a model answers with. Its schema, and its text back into a value. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aerix_server.config.bounds import CALLS_KEPT, THOUGHT_CHARS
from aerix_server.protocol.events import Call, Doubt
from aerix_server.runtime import strict_json

Schema = Mapping[str, Any]

VERDICT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"verdict": {"enum": ["pass", "fail"]}, "reason": {"type": "string"}},
    "required": ["verdict", "reason"],
    "additionalProperties": False,
}
"""A verifier's final."""

_FENCE = re.compile(r"```(?:json)?\s*\n(.*)\n\s*```", re.DOTALL)


@dataclass(frozen=True)
class Turn:
    """Either `calls` (1 to 8 of them) or, when there are none, `final`. `dropped` calls came after the eighth.

    `doubts` are of its calls, by the calls' ids.
    """

    thought: str
    calls: tuple[Call, ...] = ()
    final: Any = None
    dropped: int = 0
    doubts: tuple[Doubt, ...] = ()


@dataclass(frozen=True)
class TurnError:
    """Why a text is no turn, as the model is told."""

    reason: str


def turn_schema(tools: Mapping[str, Schema], final: Schema | None = None) -> dict[str, Any]:
    """The schema of a turn that may call `tools` (name → input schema); `final` replaces the plain string."""
    thought = {"type": "string", "maxLength": THOUGHT_CHARS}
    answer = _object({"thought": thought, "final": {"type": "string"} if final is None else {"$ref": "#/$defs/final"}})
    schema: dict[str, Any] = answer
    if tools:
        one = [_object({"tool": {"const": name}, "input": dict(inner)}) for name, inner in tools.items()]
        calls = {"type": "array", "minItems": 1, "maxItems": CALLS_KEPT, "items": {"oneOf": one}}
        schema = {"oneOf": [_object({"thought": thought, "calls": calls}), answer]}
    if final is not None:
        schema = {**schema, "$defs": {"final": _rooted(final, "#/$defs/final")}}
    return schema


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _rooted(value: Any, root: str) -> Any:
    """The schema with its own references moved under `root`, and without the keys that name a document."""
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if key not in ("$schema", "$id")}
        reference = kept.get("$ref")
        moved = {key: _rooted(item, root) for key, item in kept.items()}
        if isinstance(reference, str) and reference.startswith("#"):
            moved["$ref"] = root + reference[1:]
        return moved
    if isinstance(value, list):
        return [_rooted(item, root) for item in value]
    return value


def parse_turn(raw: str, calls_before: int, text_final: bool = True) -> Turn | TurnError:
    """A turn from a model's text. Its calls are numbered from c<calls_before + 1>; a long thought is cut.

    `text_final`: a final must be a string; otherwise its shape is the constraint's business.
    """
    try:
        value = strict_json.loads(_bare(raw))
    except ValueError as error:
        return TurnError(str(error))
    except RecursionError:
        return TurnError(f"the JSON is nested deeper than {strict_json.MAX_DEPTH} levels")
    if not isinstance(value, dict):
        return TurnError("the answer is not a JSON object")
    thought = value.get("thought", "")
    if not isinstance(thought, str):
        return TurnError('"thought" is not a string')
    if ("calls" in value) == ("final" in value):
        return TurnError('the object needs exactly one of "calls" and "final"')
    if "calls" in value:
        return _calls(value["calls"], thought[:THOUGHT_CHARS], calls_before)
    if text_final and not isinstance(value["final"], str):
        return TurnError('"final" is not a string')
    return Turn(thought[:THOUGHT_CHARS], final=value["final"])


def _bare(raw: str) -> str:
    """Without a code fence around the whole: members without the Json constraint write one often."""
    text = raw.strip()
    fenced = _FENCE.fullmatch(text)
    return fenced[1] if fenced else text


def _calls(calls: Any, thought: str, calls_before: int) -> Turn | TurnError:
    if not isinstance(calls, list):
        return TurnError('"calls" is not a list')
    if not calls:
        return TurnError('"calls" is empty: make at least one call, or answer with "final"')
    kept = []
    for number, call in enumerate(calls[:CALLS_KEPT], calls_before + 1):
        if not (
            isinstance(call, dict) and isinstance(call.get("tool"), str) and isinstance(call.get("input", {}), dict)
        ):
            return TurnError('a call is not an object of the form {"tool": "<name>", "input": {…}}')
        kept.append(Call(id=f"c{number}", tool=call["tool"], input=call.get("input", {})))
    return Turn(thought, tuple(kept), dropped=len(calls) - len(kept))


def canonical(call: Call) -> str:
    """The call without what does not change its meaning: its id, the order of keys, spaces around strings."""
    return json.dumps([call.tool, _stripped(call.input)], sort_keys=True, separators=(",", ":"))


def _stripped(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, dict):
        return {key: _stripped(item) for key, item in value.items()}
    return [_stripped(item) for item in value] if isinstance(value, list) else value


def ask_again(error: TurnError) -> str:
    """What the model is told about a text that is no turn."""
    return (
        f"[turn refused] {error.reason}. "
        "Answer again with one JSON object as described under # Turns, and nothing else."
    )


def ask_shorter(limit: int) -> str:
    """What the model is told after a turn that its token limit cut."""
    return (
        f"[turn cut] Your answer was longer than its limit of {limit} tokens, so it was dropped. "
        "Answer again, much shorter: one call, or a short final."
    )


def dropped_note(dropped: int) -> str:
    """What the model is told when a turn had more calls than are kept."""
    return f"[calls dropped] Only the first {CALLS_KEPT} calls of a turn are run; {dropped} more were dropped."
