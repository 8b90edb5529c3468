"""The table of tools: names, order, inputs, and the sentences for wrong input; and the small tools."""

from __future__ import annotations

import json

import llguidance
import pytest

from aerix_server.tools.base import ToolError
from aerix_server.tools.registry import parse_input, registry

FIELDS = {
    "read": ({"path", "offset", "limit"}, {"path"}),
    "write": ({"path", "content"}, {"path", "content"}),
    "edit": ({"path", "old", "new", "replace_all"}, {"path", "old", "new"}),
    "bash": ({"command", "timeout_secs", "background"}, {"command"}),
    "glob": ({"pattern", "path"}, {"pattern"}),
    "grep": ({"pattern", "path", "glob", "max_matches"}, {"pattern"}),
    "repo_map": (set(), set()),
    "plan": ({"op", "text"}, {"op"}),
    "context": ({"op", "ids", "text"}, {"op"}),
    "agent": ({"brief", "check"}, {"brief", "check"}),
    "skill": ({"name", "args", "list"}, set()),
    "web_fetch": ({"url"}, {"url"}),
    "web_search": ({"query"}, {"query"}),
}

NAMES = list(FIELDS)


def test_names_and_order():
    assert list(registry()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_schemas(name):
    schema = registry()[name].schema()
    fields, required = FIELDS[name]
    assert set(schema.get("properties", {})) == fields
    assert set(schema.get("required", [])) == required
    assert schema["additionalProperties"] is False
    text = json.dumps(schema)
    assert not any(word in text for word in ("anyOf", "null", "title", "default", "description", "$ref"))
    grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
    assert llguidance.LLMatcher.validate_grammar(grammar) == ""


def test_descriptions_are_short():
    texts = [tool.description for tool in registry().values()]
    assert all(texts)
    assert sum(len(text) for text in texts) < 1600


@pytest.mark.parametrize(
    ("tool", "raw", "told"),
    [
        ("read", {}, "path is missing: it must be a string"),
        ("read", {"path": None}, "path must be a string, not null"),
        ("read", {"path": "f", "limit": "10"}, 'limit must be an integer, not a string ("10")'),
        ("read", {"path": "f", "limit": True}, "limit must be an integer, not true"),
        ("read", {"path": "f", "limit": 1.5}, "limit must be an integer, not the number 1.5"),
        ("read", {"path": "f", "offset": 0}, "offset must be at least 1, not 0"),
        ("read", {"path": "f", "offset": 10**9 + 1}, "offset must be at most 1000000000, not 1000000001"),
        ("grep", {"pattern": "x" * 1001}, "pattern must have at most 1000 characters, not 1001"),
        ("read", {"path": "f", "lines": 3}, "unknown field lines: read takes path, offset, limit"),
        ("repo_map", {"path": "."}, "unknown field path: repo_map takes no input"),
        ("bash", {"command": "x", "timeout_secs": 601}, "timeout_secs must be at most 600, not 601"),
        ("bash", {"command": ["x"]}, "command must be a string, not a list"),
        ("edit", {"path": "f", "old": "a", "new": "b", "replace_all": "yes"}, "replace_all must be true or false"),
        ("plan", {"op": "show"}, 'op must be one of read, write, not "show"'),
        ("plan", {"op": 3}, "op must be one of read, write, not the number 3"),
        ("context", {"op": "drop", "ids": "s1"}, 'ids must be a list of strings, not a string ("s1")'),
        ("context", {"op": "drop", "ids": [1]}, "ids[0] must be a string, not the number 1"),
        ("write", {"path": 1, "content": 2}, "path must be a string, not the number 1; content must be a string"),
        ("read", ["f"], "the input of read must be an object, not a list"),
        ("read", None, "the input of read must be an object, not null"),
    ],
)
def test_wrong_input_is_a_sentence(tool, raw, told):
    with pytest.raises(ToolError) as caught:
        parse_input(registry()[tool], raw)
    assert told in str(caught.value)


def test_null_is_as_good_as_absent():
    parsed = parse_input(registry()["grep"], {"pattern": "x", "path": None, "glob": None})
    assert parsed == parse_input(registry()["grep"], {"pattern": "x"})


async def test_reserved_names(bench):
    assert "reserved name" in await bench.refusal("web_fetch", url="x")
    assert "reserved name" in await bench.refusal("web_search", query="x")


async def test_plan(bench):
    assert await bench.text("plan", op="read") == "[the plan is empty]"
    assert (await bench.text("plan", op="write", text="1. look")).startswith("plan written; nothing of it is done yet")
    assert await bench.text("plan", op="read") == "1. look"
    assert "text is missing" in await bench.error("plan", op="write")
    bench.plan.edited = "2. think"
    assert await bench.text("plan", op="write", text="x") == "the user edited the plan; it now reads:\n2. think"
    bench.plan.aborted = True
    assert await bench.refusal("plan", op="write", text="x") == "the user aborted the plan"


async def test_context(bench):
    assert await bench.text("context", op="status") == "s1 system 12 pinned"
    await bench.text("context", op="drop", ids=["s2", "s3", "s2"])
    await bench.text("context", op="summarize", ids=["s2"], text="short")
    await bench.text("context", op="pin", ids=["s2"])
    await bench.text("context", op="unpin", ids=["s2"])
    await bench.text("context", op="note", text="kept")
    assert bench.context.asked[1:] == [
        ("drop", ["s2", "s3"]),
        ("summarize", ["s2"], "short"),
        ("pin", ["s2"], True),
        ("pin", ["s2"], False),
        ("note", "kept"),
    ]
    assert "ids is missing" in await bench.error("context", op="drop")
    assert "text is missing" in await bench.error("context", op="note", text=" ")


async def test_skill(bench):
    assert await bench.text("skill", list=True) == "no skills are installed"
    assert await bench.error("skill", name="deploy") == "there is no skill 'deploy'; no skills are installed"
    assert "name is missing" in await bench.error("skill")
    bench.ctx.skills.update({"deploy": "Deploy $ARGUMENTS now.", "review": "Read it."})
    assert await bench.text("skill", list=True) == "skills: deploy, review"
    assert await bench.text("skill", name="deploy", args="api") == "Deploy api now."
    assert await bench.text("skill", name="review", args="all") == "Read it.\n\nArguments: all"
