"""The turn as a grammar: what it allows beside the schema of a turn, as the pool's compiler follows both."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aerix_server.config.bounds import KNOWN_PATHS
from aerix_server.runtime.lark import JSON_STYLE
from aerix_server.runtime.path_grammar import KnownPaths
from aerix_server.runtime.turn import turn_schema
from aerix_server.runtime.turn_grammar import EDIT, PATH_TOOLS, SeenFile, turn_grammar
from aerix_server.tools.registry import registry
from caldrix.engine import constrain
from tests.runtime.grammar_kit import accepts, compiled, schema_accepts

TOOLS = {name: tool.schema() for name, tool in registry().items()}
ROOT = '/srv/ann/a "b"\\c'
A = "x = 1\ny = 1\nx = 2\n"
KNOWN = KnownPaths(
    ("src/a.py", "src/b.py", 'odd "name".txt', "line\\nfeed"),
    ("src",),
    ("node_modules", ".git"),
    ("other", ".."),
    ("home", "homes", "etc"),
)
SEEN = (SeenFile("src/a.py", A),)
VERDICT: dict[str, Any] = {
    "type": "object",
    "properties": {"verdict": {"$ref": "#/$defs/word"}},
    "required": ["verdict"],
    "additionalProperties": False,
    "$defs": {"word": {"enum": ["pass", "fail"]}},
}


def turn(*calls: tuple[str, dict[str, Any]], thought: str = "next") -> str:
    made = [{"tool": tool, "input": given} for tool, given in calls]
    return json.dumps({"thought": thought, "calls": made}, ensure_ascii=False)


def edit(path: str, old: str, **more: Any) -> str:
    return turn(("edit", {"path": path, "old": old, "new": "n", **more}))


TURNS = [
    (turn(("repo_map", {})), True),
    (turn(("bash", {"command": "ls"}), ("bash", {"command": "ls", "background": True})), True),
    (turn(("read", {"path": "src/a.py", "offset": 3, "limit": 7})), True),
    (turn(("read", {"path": "src/a.py", "limit": 7})), True),
    (turn(("read", {"path": "src/a.py", "limit": 7, "offset": 3})), False),
    (turn(("read", {"path": "src/a.py", "offset": 0})), False),
    (turn(("read", {})), False),
    (turn(("grep", {"pattern": "x", "path": "src", "glob": "*.py", "max_matches": 3})), True),
    (turn(("glob", {"pattern": "*"})), True),
    (turn(("write", {"path": "new/file", "content": "\u00e9\n"})), True),
    (turn(("agent", {"brief": "b", "check": "c"})), True),
    (edit("src/b.py", "anything", replace_all=False), True),
    (edit("src/b.py", ""), True),
    (turn(*[("repo_map", {})] * 8), True),
    (turn(*[("repo_map", {})] * 9), False),
    (turn(), False),
    (turn(("nothing", {})), False),
    (turn(("repo_map", {}), thought="t" * 600), True),
    (turn(("repo_map", {}), thought="t" * 601), False),
    (turn(("repo_map", {})).replace(", ", ","), False),
    (turn(("repo_map", {})) + " ", False),
    (json.dumps({"thought": "t", "final": "done\n"}), True),
    (json.dumps({"thought": "t", "final": {"verdict": "pass"}}), False),
    (json.dumps({"thought": "t"}), False),
]


@pytest.mark.parametrize(("text", "allowed"), TURNS)
def test_a_turn_that_needs_no_help_is_allowed_as_the_schema_allows_it(text: str, allowed: bool) -> None:
    assert schema_accepts(turn_schema(TOOLS), text) is allowed
    for known, seen in ((None, ()), (KNOWN, ()), (None, SEEN), (KNOWN, SEEN)):
        assert accepts(turn_grammar(TOOLS, None, ROOT, known, seen), text) is allowed


def test_a_final_with_a_schema_and_no_tools() -> None:
    for value, allowed in (({"verdict": "pass"}, True), ({"verdict": "maybe"}, False), ("text", False)):
        text = json.dumps({"thought": "t", "final": value})
        assert schema_accepts(turn_schema({}, VERDICT), text) is allowed
        assert accepts(turn_grammar({}, VERDICT, ROOT, KNOWN, SEEN), text) is allowed
        assert accepts(turn_grammar(TOOLS, VERDICT, ROOT, KNOWN, SEEN), text) is allowed


HELD = turn_grammar(TOOLS, None, ROOT, KNOWN, SEEN)


@pytest.mark.parametrize(
    ("path", "read", "edit_", "glob"),
    [
        ("src/b.py", True, True, False),
        ("./src/b.py", True, True, False),
        (f"{ROOT}/src/b.py", True, True, False),
        ('odd "name".txt', True, True, False),
        ("line\\nfeed", True, True, False),
        ("src", True, False, True),
        ("src/", True, False, True),
        ("./src/", True, False, True),
        (".", True, False, True),
        ("./", True, False, True),
        (ROOT, True, False, True),
        (f"{ROOT}/", True, False, True),
        (f"{ROOT}/src", True, False, True),
        ("node_modules", True, False, True),
        ("node_modules/x/y.js", True, True, True),
        (f"{ROOT}/.git/config", True, True, True),
        ("/etc/hosts", True, True, True),
        ("/home", True, True, True),
        ("/homes/x", True, True, True),
        ("/homer/x", False, False, False),
        ("/src/b.py", False, False, False),
        ("/nothing", False, False, False),
        ("../src/b.py", False, False, False),
        ("../../x.py", True, True, True),
        ("../", True, True, True),
        ("/", False, False, False),
        ("/home/", True, True, True),
        ("/srv/ann", True, True, True),
        ("/srv/ann/a", True, True, True),
        (f"{ROOT}d/e", True, True, True),
        ("../other/x.py", True, True, True),
        ("..", True, True, True),
        ("~/notes.txt", False, False, False),
        ("src/c.py", False, False, False),
        ("src/b.pyc", False, False, False),
        ("b.py", False, False, False),
        ("./node", False, False, False),
        (f"{ROOT}/src/c.py", False, False, False),
        (f"{ROOT}//src/b.py", False, False, False),
        ("", False, False, False),
    ],
)
def test_a_path_that_must_be_there_is(path: str, read: bool, edit_: bool, glob: bool) -> None:
    assert accepts(HELD, turn(("read", {"path": path}))) is read
    assert accepts(HELD, turn(("grep", {"pattern": "x", "path": path}))) is read
    assert accepts(HELD, edit(path, "o")) is edit_
    assert accepts(HELD, turn(("glob", {"pattern": "x", "path": path}))) is glob
    free = turn_grammar(TOOLS, None, ROOT, None, SEEN)
    assert accepts(free, turn(("read", {"path": path}))) and accepts(free, edit(path, "o"))
    assert accepts(HELD, turn(("write", {"path": path, "content": ""})))


@pytest.mark.parametrize("path", ["src/a.py", "./src/a.py", f"{ROOT}/src/a.py"])
@pytest.mark.parametrize("known", [None, KNOWN])
def test_an_old_in_a_file_that_was_read_stands_there_once(path: str, known: KnownPaths | None) -> None:
    grammar = turn_grammar(TOOLS, None, ROOT, known, SEEN)
    assert accepts(grammar, edit(path, "x = 1\ny")) and accepts(grammar, edit(path, "y = 1"))
    assert not accepts(grammar, edit(path, "x")) and not accepts(grammar, edit(path, "z"))
    assert not accepts(grammar, edit(path, "y = 1", replace_all=True))
    every = turn(("edit", {"path": path, "replace_all": True, "old": "x", "new": "n"}))
    assert accepts(grammar, every) and not accepts(grammar, every.replace("true", "false"))


def test_files_with_nothing_unique_or_that_are_gone_are_edited_freely() -> None:
    seen = [SeenFile("src/b.py", "z\n" * 300), SeenFile("gone.py", "text"), *SEEN]
    grammar = turn_grammar(TOOLS, None, ROOT, KNOWN, seen)
    assert accepts(grammar, edit("src/b.py", "z", replace_all=True)) and not accepts(grammar, edit("gone.py", "text"))
    assert accepts(grammar, edit("src/a.py", "y")) and not accepts(grammar, edit("src/a.py", "x"))


@pytest.mark.parametrize("root", ["/", "/w", "/\u00e9/\u2028-[^x]", "/w/" + "deep/" * 200 + "end"])
def test_any_working_directory_can_be_told_from_others(root: str) -> None:
    grammar = turn_grammar(TOOLS, None, root, KnownPaths(("a",), top=("else", "w", "\u00e9", "")), ())
    for path in ("a", "./a", f"{root.rstrip('/')}/a"):
        assert accepts(grammar, turn(("read", {"path": path})))
    assert not accepts(grammar, turn(("read", {"path": f"{root.rstrip('/')}/b"})))
    assert accepts(grammar, turn(("read", {"path": "/else/b"}))) is (root != "/")
    assert accepts(grammar, turn(("read", {"path": "../b"})))


def test_an_empty_directory_has_a_grammar() -> None:
    grammar = turn_grammar(TOOLS, None, ROOT, KnownPaths())
    assert accepts(grammar, turn(("read", {"path": "."}))) and not accepts(grammar, turn(("read", {"path": "a"})))


def test_the_most_paths_compile() -> None:
    names = tuple(f"directory_{number % 40}/module_{number}.py" for number in range(KNOWN_PATHS))
    grammar = turn_grammar(TOOLS, None, ROOT, KnownPaths(names), SEEN)
    assert len(grammar) < constrain.MAX_GRAMMAR_CHARACTERS and not compiled(grammar).is_error()


def test_values_inside_a_grammar_are_spaced_as_the_json_constraint_spaces_them() -> None:
    assert constrain._JSON_STYLE == JSON_STYLE


def test_the_tools_are_those_the_grammar_knows() -> None:
    """Their inputs' fields in this order: a grammar writes them itself."""
    assert list(TOOLS[EDIT]["properties"]) == ["path", "old", "new", "replace_all"]
    for name in PATH_TOOLS:
        fields = TOOLS[name]["properties"]
        assert "path" in fields and next(iter(fields)) in TOOLS[name]["required"]
