"""The turn's schema and parser, as tables."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from aerix_server.protocol.events import Call
from aerix_server.runtime.grammar import SchemaRefused, check_schema, check_tools
from aerix_server.runtime.turn import VERDICT_SCHEMA, Turn, TurnError, canonical, parse_turn, turn_schema

PATH = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
NONE = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS: dict[str, dict[str, Any]] = {"read": PATH, "repo_map": NONE}


def calls(*items: dict[str, Any], thought: str = "t") -> str:
    return json.dumps({"thought": thought, "calls": list(items)})


def read(path: str = "a") -> dict[str, Any]:
    return {"tool": "read", "input": {"path": path}}


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ({"thought": "t", "calls": [read()]}, True),
        ({"thought": "t", "calls": [{"tool": "repo_map", "input": {}}] * 8}, True),
        ({"thought": "t", "final": "done"}, True),
        ({"thought": "t", "calls": []}, False),
        ({"thought": "t", "calls": [read()] * 9}, False),
        ({"thought": "t" * 601, "final": "done"}, False),
        ({"thought": "t", "final": 7}, False),
        ({"final": "no thought"}, False),
        ({"thought": "t", "final": "x", "calls": [read()]}, False),
        ({"thought": "t", "calls": [{"tool": "write", "input": {"path": "a"}}]}, False),
        ({"thought": "t", "calls": [{"tool": "read", "input": {}}]}, False),
    ],
)
def test_schema_says_what_a_turn_is(value: dict[str, Any], valid: bool) -> None:
    assert jsonschema.Draft202012Validator(turn_schema(TOOLS)).is_valid(value) is valid


def test_without_tools_the_only_answer_is_a_final() -> None:
    validator = jsonschema.Draft202012Validator(turn_schema({}))
    assert validator.is_valid({"thought": "", "final": "x"})
    assert not validator.is_valid({"thought": "", "calls": [read()]})


@pytest.mark.parametrize(
    ("final", "good", "bad"),
    [
        (VERDICT_SCHEMA, {"verdict": "pass", "reason": "r"}, "pass"),
        (
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "$id": "urn:x",
                "$defs": {
                    "node": {
                        "type": "object",
                        "properties": {"next": {"$ref": "#/$defs/node"}},
                        "additionalProperties": False,
                    }
                },
                "$ref": "#/$defs/node",
            },
            {"next": {"next": {}}},
            {"next": 1},
        ),
        ({"type": "array", "items": {"$ref": "#"}}, [[], [[]]], [1]),
    ],
)
def test_a_final_of_its_own_schema(final: dict[str, Any], good: Any, bad: Any) -> None:
    schema = turn_schema(TOOLS, final)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid({"thought": "t", "final": good})
    assert not validator.is_valid({"thought": "t", "final": bad})
    check_schema(schema, "the turn")


def test_the_whole_turn_of_many_tools_compiles() -> None:
    check_schema(turn_schema({f"tool_{number}": PATH for number in range(12)}), "the turn")


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (
            {
                "type": "object",
                "properties": {"good": {"type": "string"}, "when": {"type": "string", "format": "nope"}},
            },
            "'when'",
        ),
        ({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"not": {}}}}}}, "'a.b'"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ],
)
def test_a_schema_that_does_not_compile_names_tool_and_property(schema: dict[str, Any], named: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        check_tools({"read": PATH, "broken": schema})
    assert "'broken'" in str(refused.value) and named in str(refused.value) and "'read'" not in str(refused.value)


def test_calls_are_numbered_over_the_agents_life() -> None:
    turn = parse_turn(calls(read("a"), read("b")), 4)
    assert isinstance(turn, Turn)
    assert [call.id for call in turn.calls] == ["c5", "c6"] and turn.final is None and turn.dropped == 0


def test_nine_calls_keep_eight() -> None:
    turn = parse_turn(calls(*[read()] * 11), 0)
    assert isinstance(turn, Turn)
    assert len(turn.calls) == 8 and turn.dropped == 3 and turn.calls[-1].id == "c8"


def test_a_long_thought_is_cut() -> None:
    turn = parse_turn(json.dumps({"thought": "é" * 700, "final": "f"}), 0)
    assert isinstance(turn, Turn) and turn.thought == "é" * 600


@pytest.mark.parametrize(
    ("raw", "tool", "given"),
    [
        (calls({"tool": "raed", "input": {"path": "a"}}), "raed", {"path": "a"}),
        (calls({"tool": "read", "input": {"path": None, "limit": "10"}}), "read", {"path": None, "limit": "10"}),
        (calls({"tool": "repo_map"}), "repo_map", {}),
        ("```json\n" + calls(read("x")) + "\n```", "read", {"path": "x"}),
        ("  " + calls(read("y")) + "\n", "read", {"path": "y"}),
    ],
)
def test_what_is_the_tools_business_is_a_turn(raw: str, tool: str, given: dict[str, Any]) -> None:
    turn = parse_turn(raw, 0)
    assert isinstance(turn, Turn) and (turn.calls[0].tool, turn.calls[0].input) == (tool, given)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("", ""),
        ("hello", ""),
        ('{"thought": "t", "final": "x"', ""),
        ("[]", "object"),
        ('"x"', "object"),
        ("{}", "exactly one"),
        ('{"thought": "t", "final": "x", "calls": []}', "exactly one"),
        ('{"thought": "t", "calls": []}', "empty"),
        ('{"thought": "t", "calls": {}}', "list"),
        ('{"thought": "t", "calls": ["read"]}', "not an object"),
        ('{"thought": "t", "calls": [{"tool": 7, "input": {}}]}', "not an object"),
        ('{"thought": "t", "calls": [{"tool": "read", "input": []}]}', "not an object"),
        ('{"thought": 7, "final": "x"}', "thought"),
        ('{"thought": "t", "final": null}', "not a string"),
        ('{"thought": "t", "final": NaN}', "NaN"),
        ('{"thought": "t", "final": -Infinity}', "Infinity"),
        ('{"thought": "t", "final": 1e999}', "out of range"),
        ('{"thought": "t", "final": ' + "9" * 400 + "}", "out of range"),
        ('{"thought": "t", "final": ' + "9" * 9000 + "}", "out of range"),
        ('{"thought": "a", "thought": "b", "final": "x"}', "twice"),
        ('{"thought": "t", "final": ' + "[" * 5000 + "]" * 5000 + "}", "deeper"),
        ("[" * 100_000, "deeper"),
    ],
)
def test_what_is_no_turn_is_asked_again_with_a_reason(raw: str, said: str) -> None:
    error = parse_turn(raw, 0)
    assert isinstance(error, TurnError) and error.reason and said in error.reason


def test_a_megabyte_of_content_is_a_turn_like_any_other() -> None:
    turn = parse_turn(calls({"tool": "write", "input": {"path": "a", "content": "x" * 1_000_000}}), 0)
    assert isinstance(turn, Turn) and len(turn.calls[0].input["content"]) == 1_000_000


def test_a_structured_final_may_be_any_value() -> None:
    turn = parse_turn('{"thought": "t", "final": {"n": 1}}', 0, text_final=False)
    assert isinstance(turn, Turn) and turn.final == {"n": 1}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": "x y"}, {"b": " x  y ", "a": 1}, True),
        ({"a": ["p", {"q": "r"}]}, {"a": ["p ", {"q": "r"}]}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": "1"}, {"a": 1}, False),
    ],
)
def test_canonical_calls(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    first, second = Call(id="c1", tool="grep", input=one), Call(id="c9", tool="grep", input=other)
    assert (canonical(first) == canonical(second)) is same
    assert canonical(first) != canonical(first.model_copy(update={"tool": "glob"}))
