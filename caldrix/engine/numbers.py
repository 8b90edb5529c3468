"""Numbers that llguidance must not see: near the least 64-bit integer its ranges recurse until the stack ends.

Measured with llguidance 1.9: `{"const": -9223372036854775808}`, or an integer bound that it rounds to there, ends the
process, however large the stack.
"""

from __future__ import annotations

import re
from typing import Any, Final

from caldrix.protocol.errors import Refused

LEAST: Final = -9_200_000_000_000_000_000
_NUMBER: Final = re.compile(r"-\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def check_schema_numbers(schema: Any) -> None:
    """Raises Refused("constraint_invalid") with the place of a number below LEAST."""
    waiting: list[tuple[str, Any]] = [("$", schema)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, dict):
            waiting += [(f"{path}.{key}", value) for key, value in node.items()]
        elif isinstance(node, list):
            waiting += [(f"{path}[{place}]", value) for place, value in enumerate(node)]
        elif isinstance(node, int | float) and node < LEAST:
            raise _refused("schema", path)


def check_lark_numbers(grammar: str) -> None:
    """The same for the schemas that a Lark grammar holds behind `%json`."""
    if "%json" not in grammar:
        return
    for match in _NUMBER.finditer(grammar):
        if float(match[0]) < LEAST:
            line = grammar.count("\n", 0, match.start()) + 1
            raise _refused("Lark grammar", f"line {line}")


def _refused(what: str, where: str) -> Refused:
    return Refused(
        "constraint_invalid",
        f"the {what} cannot be used as a constraint: at {where[:300]}: a number is below {LEAST}, the least that can "
        "be compiled",
    )
