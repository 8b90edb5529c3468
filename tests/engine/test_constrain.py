"""Hostile constraints: refused or compiled, within a bound, and never the end of the process."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from caldrix.engine.constrain import MAX_GRAMMAR_CHARACTERS, Compiler, locate
from caldrix.engine.deep import with_deep_stack
from caldrix.engine.guard import Guard
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Json, Lark, Regex
from tests.doubles.toy_backend import Script, ToyBackend

BOUND_S = 10.0
"""Measured at about 1 s; a machine under load is slower."""


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(ToyBackend(Script([""])).matcher_tokenizer(), Guard())


def chain(kind: str, length: int) -> Json | Lark:
    """A grammar that nests as deeply as it is long: on a usual stack its compilation ends the process."""
    if kind == "Lark":
        rules = "\n".join(f"r{number}: r{number + 1}" for number in range(length))
        return Lark(kind="Lark", grammar=f'start: r0\n{rules}\nr{length}: "x"\n')
    links: dict[str, Any] = {str(number): {"items": {"$ref": f"#/$defs/{number + 1}"}} for number in range(length)}
    return Json(kind="Json", schema={"$ref": "#/$defs/0", "$defs": {**links, str(length): {"type": "integer"}}})


@pytest.mark.parametrize(
    "constraint",
    [
        chain("Lark", 30_000),
        chain("Json", 11_000),
        Lark(kind="Lark", grammar="start: " + "(" * 10_000 + '"x"' + ")" * 10_000),
        Lark(kind="Lark", grammar='start: (("a"{0,1000}){0,1000}){0,1000}'),
        Regex(kind="Regex", pattern="((a{1,1000}){1,1000}){1,1000}"),
        Regex(kind="Regex", pattern="(a|b)*a(a|b){25}"),
        Regex(kind="Regex", pattern="|".join(f"word{number}" for number in range(40_000))),
        Json(kind="Json", schema={"type": "array", "items": {"maxLength": 10**6}, "maxItems": 10**6}),
        Json(kind="Json", schema={"enum": [f"value {number}" for number in range(30_000)]}),
        Json(kind="Json", schema={"properties": {f"p{number}": {"type": "integer"} for number in range(10_000)}}),
        Json(kind="Json", schema={"patternProperties": {f"^x{number}y": {} for number in range(500)}}),
        Json(
            kind="Json", schema={"allOf": [{"anyOf": [{"required": [f"{a}{b}"]} for b in "abcdef"]} for a in "123456"]}
        ),
    ],
    ids=str.split(
        "lark-chain ref-chain nested-parentheses lark-repeats regex-repeats states words "
        "long-strings enum properties pattern-properties cross-product"
    ),
)
def test_a_hostile_grammar_is_answered_within_a_bound(compiler: Compiler, constraint: Json | Regex | Lark) -> None:
    started = time.monotonic()
    try:
        compiler.matcher(constraint)
    except Refused as refused:
        assert refused.code == "constraint_invalid"
    assert time.monotonic() - started < BOUND_S


@pytest.mark.parametrize(
    "constraint",
    [
        Regex(kind="Regex", pattern="x" * (MAX_GRAMMAR_CHARACTERS + 1)),
        Lark(kind="Lark", grammar="x" * (MAX_GRAMMAR_CHARACTERS + 1)),
        Json(kind="Json", schema={"const": "x" * MAX_GRAMMAR_CHARACTERS}),
    ],
)
def test_a_grammar_beyond_the_limit_is_refused_with_numbers(
    compiler: Compiler, constraint: Json | Regex | Lark
) -> None:
    with pytest.raises(Refused, match=str(MAX_GRAMMAR_CHARACTERS)) as refused:
        compiler.matcher(constraint)
    assert refused.value.code == "constraint_invalid"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (True, None),
        (False, "allows no value"),
        ({"const": 10**400}, "cannot be read"),
        ({"minimum": float("inf")}, "cannot be read"),
    ],
)
def test_a_schema_that_is_none_for_the_compiler_is_named(compiler: Compiler, schema: Any, said: str | None) -> None:
    constraint = Json(kind="Json", schema=schema)
    if said is None:
        assert not compiler.matcher(constraint).is_error()
        return
    with pytest.raises(Refused, match=said) as refused:
        compiler.matcher(constraint)
    assert refused.value.code == "constraint_invalid"


@pytest.mark.parametrize(
    ("constraint", "where"),
    [
        (Json(kind="Json", schema={"const": -(2**63)}), "$.const"),
        (
            Json(kind="Json", schema={"properties": {"a": {"enum": ["a", -(2**63) + 10, None]}}}),
            "$.properties.a.enum[1]",
        ),
        (Json(kind="Json", schema={"type": "integer", "minimum": -1e19, "maximum": -9.3e18}), "$.maximum"),
        (Json(kind="Json", schema={"allOf": [{"type": "integer", "maximum": -1e25}]}), "$.allOf[0].maximum"),
        (Lark(kind="Lark", grammar='start: "a"\n | %json {"const": -9223372036854775808}'), "line 2"),
        (Lark(kind="Lark", grammar='start: %json {"type": "integer", "maximum": -1E+19}'), "line 1"),
    ],
)
def test_a_number_that_would_end_the_process_is_refused_with_its_place(
    compiler: Compiler, constraint: Json | Lark, where: str
) -> None:
    """Found by fuzzing: llguidance recurses without end near the least 64-bit integer."""
    with pytest.raises(Refused) as refused:
        compiler.matcher(constraint)
    assert refused.value.code == "constraint_invalid" and where in refused.value.message


@pytest.mark.parametrize("size", range(90, 130))
def test_a_schema_that_makes_the_compiler_panic_is_refused(compiler: Compiler, size: int) -> None:
    """Found by fuzzing: its error message is cut in the middle of a character, which is a panic."""
    with pytest.raises(Refused) as refused:
        compiler.matcher(Json(kind="Json", schema={"type": "array", "maxItems": "é" * size}))
    assert refused.value.code == "constraint_invalid" and len(refused.value.message) < 1000


@pytest.mark.parametrize("number", [-(10**18), -9_199_999_999_999_999_999, 2**63 - 1, -1e18, 0.5])
def test_numbers_that_are_only_large_are_served(compiler: Compiler, number: float) -> None:
    assert not compiler.matcher(Json(kind="Json", schema={"const": number})).is_error()
    text = Lark(kind="Lark", grammar=f'start: %json {{"const": {number!r}}}')
    assert not compiler.matcher(text).is_error()


def test_the_search_for_a_fault_ends() -> None:
    """Each child is compiled with all definitions again: quadratic, if nothing bounds it."""
    definitions = {f"d{number}": {"type": "integer"} for number in range(6_000)}
    children = {f"p{number}": {"$ref": f"#/$defs/d{number}"} for number in range(6_000)}
    started = time.monotonic()
    locate({"properties": children, "$defs": definitions, "not": {}})
    assert time.monotonic() - started < BOUND_S


def test_a_call_that_does_not_end_is_left_behind() -> None:
    release = threading.Event()
    with pytest.raises(TimeoutError):
        with_deep_stack(lambda: release.wait(BOUND_S), 0.05)
    release.set()


def test_a_call_gives_what_it_returns_or_raises() -> None:
    assert with_deep_stack(lambda: 7, BOUND_S) == 7
    with pytest.raises(ZeroDivisionError):
        with_deep_stack(lambda: 1 // 0, BOUND_S)
