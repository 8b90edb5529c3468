"""What the benchmark asks is what an agent asks: its schema, its twelve tools, its turns."""

from __future__ import annotations

import json

import jsonschema
import pytest

from aerix_server.runtime.turn import Turn, parse_turn
from aerix_server.tools.registry import registry
from benchmarks.pool import prompts


def test_the_schema_is_of_every_tool() -> None:
    text = json.dumps(prompts.turn_constraint().schema_)
    assert all(f'"const": "{name}"' in text for name in registry())


def test_the_real_turn_is_one() -> None:
    jsonschema.validate(json.loads(prompts.REAL_TURN), prompts.turn_constraint().schema_)
    assert isinstance(parse_turn(prompts.REAL_TURN, 0), Turn)


def test_the_example_of_an_edit_is_a_turn() -> None:
    (example,) = [text for role, text in prompts.edit_request() if role == "assistant"]
    turn = parse_turn(example, 0)
    assert isinstance(turn, Turn)
    assert turn.calls[0].tool == "edit"


@pytest.mark.parametrize(
    ("call", "valid"),
    [
        ({"path": prompts.SAMPLE_PATH, "old": "a", "new": "b"}, True),
        ({"path": "other.py", "old": "a", "new": "b"}, False),
        ({"path": prompts.SAMPLE_PATH, "old": "a"}, False),
    ],
)
def test_the_edit_under_its_constraint(call: dict[str, str], valid: bool) -> None:
    turn = {"thought": "t", "calls": [{"tool": "edit", "input": call}]}
    validator = jsonschema.Draft202012Validator(prompts.edit_constraint().schema_)
    assert validator.is_valid(turn) is valid


def test_a_file_stands_as_read_shows_it() -> None:
    assert prompts.as_read("a\n\tb\n") == "     1\ta\n     2\t\tb"
    assert prompts.as_read(prompts.SAMPLE).split("\n")[0] == "     1\tdef total(lines):"


def test_a_mark_makes_the_very_beginning_another() -> None:
    plain, marked = prompts.agent("q"), prompts.agent("q", mark="Session 1.")
    assert marked[0][1] == f"Session 1.\n\n{plain[0][1]}"
    assert marked[1:] == plain[1:]
    assert plain[-1] == ("user", "q")


@pytest.mark.parametrize("chars", [0, 10, 100_000])
def test_instructions_are_as_long_as_asked(chars: int) -> None:
    assert len(prompts.instruction_text(chars)) == chars


def test_every_client_has_a_topic_of_its_own() -> None:
    assert len(set(prompts.TOPICS)) == 4
