"""The style of the Json constraint, whatever style a server writes: `, ` and `: `, and nothing before or after. Pure.

Only white space between tokens is touched, so numbers and strings stay as the model wrote them.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import jsonschema
from jsonschema.validators import validator_for
from referencing import Registry

_FENCE: Final = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL)


class JsonStyle:
    """`feed` gives the text so far in our style; fed in any pieces, the outputs joined are the same."""

    def __init__(self) -> None:
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> str:
        return "".join(self._styled(character) for character in text)

    def _styled(self, character: str) -> str:
        if self._in_string:
            closes = character == '"' and not self._escaped
            self._escaped = character == "\\" and not self._escaped
            self._in_string = not closes
            return character
        if character == '"':
            self._in_string = True
            return character
        if character in " \t\r\n":
            return ""
        return f"{character} " if character in ",:" else character


def restyled(text: str) -> str:
    return JsonStyle().feed(text)


def without_fence(text: str) -> str:
    """The inside of a Markdown code block, where the whole text is one."""
    match = _FENCE.match(text)
    return match[1] if match else text


def fault(text: str, schema: dict[str, Any] | bool) -> str | None:
    """Why the text is no JSON value of the schema; None when it is one."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"it is not JSON: {error}"
    except RecursionError:
        return "it is nested too deeply"
    try:
        found = next(_validator(schema)(schema, registry=Registry()).iter_errors(value), None)
    except (re.error, RecursionError):
        return None  # a pattern that only the server's engine reads: it is the one that enforces it
    except Exception as broken:  # a reference that leads nowhere: `referencing` has several errors for it
        return f"the schema cannot be followed: {_short(str(broken))}"
    return None if found is None else f"{found.json_path}: {_short(found.message)}"


def _validator(schema: dict[str, Any] | bool) -> type[jsonschema.protocols.Validator]:
    validator: type[jsonschema.protocols.Validator] = validator_for(schema, default=jsonschema.Draft202012Validator)
    return validator


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:300] + "…"
