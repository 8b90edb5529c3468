"""Constraints as llguidance matchers: compiled once, copied per generation, their sticky error state raised at once."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from numpy.typing import NDArray

from caldrix.engine.deep import with_deep_stack
from caldrix.engine.guard import Guard
from caldrix.engine.numbers import check_lark_numbers, check_schema_numbers
from caldrix.engine.panic import NativePanic, panics_as_exceptions
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Json, Lark, Regex

COMPILED_KEPT: Final = 32
MAX_GRAMMAR_CHARACTERS: Final = 512 * 1024
"""What compiles within a second or is refused by llguidance's own limits; beyond, nesting could end the process."""
COMPILE_SECONDS: Final = 10.0
MAX_SCHEMA_WORK: Final = 4_000_000
"""Steps that the maps of a schema may cost: about half a second, or one map of 2,000 properties."""
LOCATE_SECONDS: Final = 1.0
"""How long the place of a schema's fault is looked for; then the narrowest place found so far is named."""
_JSON_STYLE: Final[Any] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""As the example of the turn contract is written; compact text is not how a tokenizer would split it."""

Grammar = Json | Regex | Lark


class Compiler:
    """Compiles constraints for one member's tokenizer, one at a time; `guard` keeps that tokenizer from being freed."""

    def __init__(self, tokenizer: LLTokenizer, guard: Guard) -> None:
        self._tokenizer = tokenizer
        self._guard = guard
        self._compiling = threading.Lock()
        self._lock = threading.Lock()
        self._compiled: OrderedDict[bytes, LLMatcher] = OrderedDict()

    def matcher(self, constraint: Grammar) -> LLMatcher:
        """A fresh matcher. Raises Refused("constraint_invalid") with what is wrong and, for a schema, where."""
        try:
            with panics_as_exceptions():
                return self._matcher(constraint)
        except NativePanic as panic:
            raise Refused(
                "constraint_invalid", f"the {constraint.kind} constraint breaks its compiler: {_one_line(str(panic))}"
            ) from panic

    def _matcher(self, constraint: Grammar) -> LLMatcher:
        grammar = _grammar(constraint)
        key = hashlib.sha256(grammar.encode("utf-8", "surrogatepass")).digest()
        if copy := self._copy(key):
            return copy
        with self._compiling:
            if copy := self._copy(key):
                return copy
            compiled = self._bounded_compile(constraint, grammar)
            with self._lock:
                self._compiled[key] = compiled
                while len(self._compiled) > COMPILED_KEPT:
                    self._compiled.popitem(last=False)
            return compiled.deep_copy()

    def _copy(self, key: bytes) -> LLMatcher | None:
        with self._lock:
            compiled = self._compiled.get(key)
            if compiled is None:
                return None
            self._compiled.move_to_end(key)
            return compiled.deep_copy()

    def _bounded_compile(self, constraint: Grammar, grammar: str) -> LLMatcher:
        try:
            return with_deep_stack(lambda: self._compile(constraint, grammar), COMPILE_SECONDS)
        except TimeoutError:
            raise Refused(
                "constraint_invalid",
                f"the {constraint.kind} constraint takes more than {COMPILE_SECONDS:.0f} s to compile: make it simpler",
            ) from None

    def _compile(self, constraint: Grammar, grammar: str) -> LLMatcher:
        with self._guard.use():
            matcher = LLMatcher(self._tokenizer, grammar)
        if matcher.is_error():
            raise Refused("constraint_invalid", _fault(constraint, matcher.get_error()))
        return matcher


class Masks:
    """The tokens a matcher allows next, and after each of the tokens that may follow.

    They stay right as long as the matcher consumes what was expected: `followed` keeps account of it.
    """

    def __init__(self, vocabulary_size: int) -> None:
        self._size = vocabulary_size
        self._bits = allocate_token_bitmask(1, vocabulary_size)
        self._expected: list[int] = []
        self._place: int | None = None

    def compute(self, matcher: LLMatcher, following: Sequence[int] = ()) -> None:
        """The masks of what `matcher` may consume next and of what after each of `following`, which it may consume.

        It stays as it is. Computed on the caller's thread: llguidance's executor would start one of its own for each
        generation, with a small stack.
        """
        self._place = None
        if self._bits.shape[0] <= len(following):
            self._bits = allocate_token_bitmask(len(following) + 1, self._size)
        self._bits[: len(following) + 1] = 0
        consumed = 0
        for place in range(len(following) + 1):
            fill_next_token_bitmask(matcher, self._bits, place)
            if place == len(following) or not matcher.consume_token(following[place]):
                break
            consumed += 1
        if consumed:
            matcher.rollback(consumed)
        self._expected, self._place = list(following), 0

    def followed(self, tokens: Sequence[int]) -> None:
        """The matcher has consumed these."""
        for token in tokens:
            if self._place is None or self._place >= len(self._expected) or self._expected[self._place] != token:
                self._place = None
                return
            self._place += 1

    def allows(self, matcher: LLMatcher, token: int) -> bool:
        """May this token be consumed next?"""
        return bool(self._row(matcher)[token >> 5] >> np.int32(token & 31) & 1)

    def allowed(self, matcher: LLMatcher) -> NDArray[np.bool_]:
        """What may be consumed next, as a boolean array of the vocabulary's size. Raises Refused when nothing may."""
        row = self._row(matcher)
        if not row.any():
            check(matcher)
            raise Refused("constraint_invalid", "the constraint cannot be followed: it allows no token here")
        return np.unpackbits(row.view(np.uint8), bitorder="little")[: self._size].view(np.bool_)

    def _row(self, matcher: LLMatcher) -> NDArray[np.int32]:
        if self._place is None:
            self.compute(matcher)
        row: NDArray[np.int32] = self._bits[self._place]
        return row


def check(matcher: LLMatcher) -> None:
    """Raises Refused("constraint_invalid") when the matcher has broken on its way: its error state is sticky."""
    if matcher.is_error():
        raise Refused("constraint_invalid", f"the constraint cannot be followed: {_one_line(matcher.get_error())}")


def _grammar(constraint: Grammar) -> str:
    match constraint:
        case Json():
            schema = _bounded(json.dumps(_as_object(constraint.schema_)), "schema")
            _check_work(constraint.schema_)
            check_schema_numbers(constraint.schema_)
            try:
                return LLMatcher.grammar_from_json_schema(schema, overrides=_JSON_STYLE)
            except ValueError as error:  # what is JSON for us and not for llguidance: a number of 400 digits
                raise Refused("constraint_invalid", f"the schema cannot be read: {_one_line(str(error))}") from error
        case Regex():
            return LLMatcher.grammar_from_regex(_bounded(constraint.pattern, "pattern"))
        case Lark():
            check_lark_numbers(constraint.grammar)
            return LLMatcher.grammar_from_lark(_bounded(constraint.grammar, "grammar"))


def _as_object(schema: dict[str, Any] | bool) -> dict[str, Any]:
    """A schema may be `true`, which allows everything. Raises Refused for `false`, which allows nothing."""
    if schema is False:
        raise Refused("constraint_invalid", "the schema is false, which allows no value at all")
    return {} if schema is True else schema


def _bounded(text: str, kind: str) -> str:
    if len(text) > MAX_GRAMMAR_CHARACTERS:
        raise Refused(
            "constraint_invalid",
            f"the {kind} has {len(text)} characters; a constraint has at most {MAX_GRAMMAR_CHARACTERS}",
        )
    return text


def _check_work(schema: object) -> None:
    """The compiler's time grows with the square of an object's properties, with the cube of its pattern properties."""
    work = 0
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            work += len(_mapping(node.get("properties"))) ** 2 + 4 * len(_mapping(node.get("patternProperties"))) ** 3
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    if work > MAX_SCHEMA_WORK:
        raise Refused(
            "constraint_invalid",
            "the schema has too many keywords under properties or patternProperties: an object may have about "
            "2,000 properties, or 100 pattern properties",
        )


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
    the keyword without which it would compile (None when no single one is to blame).

    Each try compiles a part again, so a large schema is searched for LOCATE_SECONDS only.
    """
    end = time.monotonic() + LOCATE_SECONDS
    definitions: dict[str, Any] = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    path, node = "$", schema
    while True:
        failing = None
        for step, child in _children(node):
            if time.monotonic() > end:
                return path, None
            if not _compiles(child, definitions):
                failing = step, child
                break
        if failing is None:
            return path, _guilty_keyword(node, definitions, end)
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


def _guilty_keyword(node: dict[str, Any], definitions: dict[str, Any], end: float) -> str | None:
    for keyword in node:
        if time.monotonic() > end:
            return None
        if _compiles({key: value for key, value in node.items() if key != keyword}, definitions):
            return keyword
    return None


def _compiles(schema: dict[str, Any], definitions: dict[str, Any]) -> bool:
    try:
        with panics_as_exceptions():
            grammar = LLMatcher.grammar_from_json_schema(json.dumps({**definitions, **schema}), overrides=_JSON_STYLE)
            return not LLMatcher.validate_grammar_with_warnings(grammar)[0]
    except NativePanic:
        return False
