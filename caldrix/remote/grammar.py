"""Constraints in llguidance's language: as a text that a server built with it takes, and checked on this side.

The check runs over bytes, so it needs no tokenizer of the model.
"""

from __future__ import annotations

import json
from typing import Any, Final

from llguidance import LLMatcher, LLTokenizer

from caldrix.engine.constrain import Compiler
from caldrix.engine.guard import Guard
from caldrix.protocol.messages import Json, Lark, Regex

_JSON_STYLE: Final[dict[str, Any]] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_HEADER: Final = "%llguidance {}\n"


def guidance_text(constraint: Json | Regex | Lark) -> str:
    """The constraint as one Lark grammar of llguidance, with the header by which llama.cpp knows it."""
    match constraint:
        case Json(schema_=schema):
            styled = _styled(schema)
            return f"{_HEADER}start: %json {json.dumps(styled)}\n"
        case Regex(pattern=pattern):
            wrapped = json.loads(LLMatcher.grammar_from_regex(pattern))
            return f"{_HEADER}{wrapped['grammars'][0]['lark_grammar']}\n"
        case Lark(grammar=grammar):
            return grammar if grammar.lstrip().startswith("%llguidance") else f"{_HEADER}{grammar}"


def byte_compiler() -> Compiler:
    """Compiles constraints for bytes: the same bounds and the same refusals as a member of this machine gives."""
    return Compiler(LLTokenizer("byte"), Guard())


def keeps(matcher: LLMatcher, text: str) -> bool:
    """Whether the whole text is one that the constraint allows. Uses the matcher up."""
    data = list(text.encode("utf-8", "replace"))
    return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()


def _styled(schema: dict[str, Any] | bool) -> dict[str, Any]:
    plain: dict[str, Any] = {"allOf": [schema]} if isinstance(schema, bool) else schema
    return {**plain, "x-guidance": _JSON_STYLE}
