"""Constraints as llguidance matchers: compiled once, copied per generation, their sticky error state raised at once."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from numpy.typing import NDArray

from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Json, Lark, Regex

COMPILED_KEPT: Final = 32
_JSON_STYLE: Final[Any] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""As the example of the turn contract is written; compact text is not how a tokenizer would split it."""

Grammar = Json | Regex | Lark


class Compiler:
    """Compiles constraints for one member's tokenizer. Used under the member's lock."""

    def __init__(self, tokenizer: LLTokenizer) -> None:
        self._tokenizer = tokenizer
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()

    def matcher(self, constraint: Grammar) -> LLMatcher:
        """A fresh matcher. Raises Refused("constraint_invalid") with what is wrong and, for a schema, where."""
        key = constraint.model_dump_json(by_alias=True)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = LLMatcher(self._tokenizer, _grammar(constraint))
            if compiled.is_error():
                raise Refused("constraint_invalid", _fault(constraint, compiled.get_error()))
            self._compiled[key] = compiled
        self._compiled.move_to_end(key)
        while len(self._compiled) > COMPILED_KEPT:
            self._compiled.popitem(last=False)
        return compiled.deep_copy()


class Mask:
    """The tokens a matcher allows next, as a boolean array of the vocabulary's size."""

    def __init__(self, vocabulary_size: int) -> None:
        self._bits = allocate_token_bitmask(1, vocabulary_size)
        self._size = vocabulary_size

    def allowed(self, matcher: LLMatcher) -> NDArray[np.bool_]:
        fill_next_token_bitmask(matcher, self._bits)
        check(matcher)
        unpacked = np.unpackbits(self._bits[0].view(np.uint8), bitorder="little")[: self._size]
        return unpacked.view(np.bool_)


def check(matcher: LLMatcher) -> None:
    """Raises Refused("constraint_invalid") when the matcher has broken on its way: its error state is sticky."""
    if matcher.is_error():
        raise Refused("constraint_invalid", f"the constraint cannot be followed: {_one_line(matcher.get_error())}")


def _grammar(constraint: Grammar) -> str:
    match constraint:
        case Json():
            return LLMatcher.grammar_from_json_schema(json.dumps(constraint.schema_), overrides=_JSON_STYLE)
        case Regex():
            return LLMatcher.grammar_from_regex(constraint.pattern)
        case Lark():
            return LLMatcher.grammar_from_lark(constraint.grammar)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]


def _fault(constraint: Grammar, error: str) -> str:
    if isinstance(constraint, Json) and isinstance(constraint.schema_, dict):
        path, keyword = locate(constraint.schema_)
        where = f"{path}, keyword {keyword!r}" if keyword else path
        return f"the schema cannot be used as a constraint: at {where}: {_one_line(error)}"
    return f"the {constraint.kind} constraint cannot be used: {_one_line(error)}"


def locate(schema: dict[str, Any]) -> tuple[str, str | None]:
    """Where a schema that does not compile is at fault: the JSON path of the smallest subschema that fails alone, and
    the keyword without which it would compile (None when no single one is to blame)."""
    definitions: dict[str, Any] = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    path, node = "$", schema
    while True:
        failing = next(((step, child) for step, child in _children(node) if not _compiles(child, definitions)), None)
        if failing is None:
            return path, _guilty_keyword(node, definitions)
        path, node = path + failing[0], failing[1]


def _children(node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for keyword in ("properties", "patternProperties", "$defs", "definitions"):
        for name, child in _mapping(node.get(keyword)).items():
            if isinstance(child, dict):
                yield f".{keyword}.{name}", child
    for keyword in ("oneOf", "anyOf", "allOf", "prefixItems"):
        children = node.get(keyword)
        for number, child in enumerate(children if isinstance(children, list) else []):
            if isinstance(child, dict):
                yield f".{keyword}[{number}]", child
    for keyword in ("items", "additionalProperties"):
        if isinstance(node.get(keyword), dict):
            yield f".{keyword}", node[keyword]


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _guilty_keyword(node: dict[str, Any], definitions: dict[str, Any]) -> str | None:
    for keyword in node:
        if _compiles({key: value for key, value in node.items() if key != keyword}, definitions):
            return keyword
    return None


def _compiles(schema: dict[str, Any], definitions: dict[str, Any]) -> bool:
    grammar = LLMatcher.grammar_from_json_schema(json.dumps({**definitions, **schema}), overrides=_JSON_STYLE)
    return not LLMatcher.validate_grammar_with_warnings(grammar)[0]
