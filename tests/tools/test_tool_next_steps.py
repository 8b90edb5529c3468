"""What a failed call says to try next, kept apart from what it says went wrong."""

from __future__ import annotations

import re

import pytest

from aerix_server.tools.base import Refusal, ToolError
from aerix_server.tools.registry import parse_input, registry

FILES = {
    "src/app.py": "def total(items):\n    return sum(items)\n",
    "long.txt": "".join(f"line number {number}\n" for number in range(1, 51)),
    "twice.txt": "x\ny\nx\n",
    "blanks.txt": "a \na\t\n",
    "empty.txt": "",
}

CASES = [
    # tool, fields, a part of the message, the next step
    ("read", {"path": "src/ap.py"}, "near it: src/app.py", "Use src/app.py if you mean that."),
    ("read", {"path": "zz/y.py"}, "no such path: zz/y.py", "Find it with glob and the pattern **/y.py."),
    (
        "edit",
        {"path": "zz", "old": "a", "new": "b"},
        "no such path",
        "Find it with glob and the pattern **/zz. To make",
    ),
    ("read", {"path": "twice.txt", "offset": 9}, "has 3 lines", "Read it with an offset of at most 3."),
    ("edit", {"path": "twice.txt", "old": "x", "new": "z"}, "2 times", "Give a longer old that holds the lines around"),
    ("edit", {"path": "twice.txt", "old": "zzzz", "new": "y"}, "no line comes near", "Read twice.txt, then edit with"),
    ("edit", {"path": "long.txt", "old": "line numbers 40", "new": "y"}, "line number 40", "Read long.txt from line "),
    ("edit", {"path": "blanks.txt", "old": "a", "new": "b"}, "found 2 times", "Give a longer old"),
    ("edit", {"path": "blanks.txt", "old": "a  ", "new": "b"}, "ignoring trailing", "Read blanks.txt around the place"),
    (
        "edit",
        {"path": "empty.txt", "old": "", "new": "y"},
        "old is empty",
        "Use write to give the empty file its text.",
    ),
    ("edit", {"path": "twice.txt", "old": "", "new": "y"}, "old is empty", "Give the text to replace as old, or use"),
    ("edit", {"path": "src", "old": "a", "new": "y"}, "is a directory", "Give the path of a file in it"),
    (
        "write",
        {"path": "twice.txt", "content": "y"},
        "3 lines that you have not read",
        "Read twice.txt, then change it",
    ),
    ("grep", {"pattern": "f(x"}, "unclosed group", "Put a backslash before each of ("),
    ("glob", {"pattern": "*", "path": "twice.txt"}, "a file, not a directory", "Give the directory that it lies in."),
    ("plan", {"op": "write"}, "text is missing", "Give the whole plan as text."),
    ("context", {"op": "drop"}, "ids is missing", "Use op status to see the ids."),
    ("skill", {}, "name is missing", "Call skill with list true."),
    ("skill", {"name": "x"}, "there is no skill", "Go on without a skill."),
    ("read", {"paths": "x"}, "unknown field paths", "Call read again with path (a string), offset (an integer, may be"),
    ("repo_map", {"path": "x"}, "unknown field path", "Call repo_map again with an empty input."),
    ("plan", {"op": "show"}, "must be one of", "Call plan again with op (one of read, write), text (a string, may be"),
]


@pytest.mark.parametrize(("tool", "fields", "told", "next_step"), CASES)
async def test_the_next_step(bench, tool, fields, told, next_step):
    for name, content in FILES.items():
        bench.put(name, content)
    with pytest.raises((ToolError, Refusal)) as caught:
        await bench.call(tool, **fields)
    assert told in str(caught.value)
    assert caught.value.next_step.startswith(next_step)
    assert re.fullmatch(r"[A-Z].*\.", caught.value.next_step)
    assert caught.value.next_step not in str(caught.value)


async def test_the_line_to_read_from_is_before_the_one_that_comes_near(bench):
    bench.put("long.txt", FILES["long.txt"])
    with pytest.raises(ToolError) as caught:
        await bench.call("edit", path="long.txt", old="line number 40 is here", new="y")
    found = re.search(r"from line (\d+)", caught.value.next_step)
    assert found is not None
    shown = [int(number) for number in re.findall(r"^ +(\d+)\t", str(caught.value), re.MULTILINE)]
    assert int(found[1]) <= min(shown) <= int(found[1]) + 3


@pytest.mark.parametrize("tool", ["write", "edit"])
def test_half_of_a_surrogate_pair_in_a_path_is_named(tool):
    with pytest.raises(ToolError, match="path holds half of a surrogate pair"):
        parse_input(registry()[tool], {"path": "a\udcff", "old": "a", "new": "b", "content": "c"})
