"""What is asked: an agent's own prompt and schema, a file to edit, and texts that repeat nothing. Pure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from aerix_server.profile.prompts import embedded_prompts
from aerix_server.runtime.prompt import opening
from aerix_server.runtime.turn import turn_schema
from aerix_server.tools.registry import registry
from benchmarks.pool.caldrix_pool import Parts
from caldrix.protocol.messages import Json, Regex, Role

ROOT: Final = Path(__file__).parents[2]
SAMPLE: Final = (Path(__file__).parent / "sample_file.txt").read_text("utf-8")
SAMPLE_PATH: Final = "shop/basket.py"

QUESTIONS: Final = ("What does this project do?", "Which part of it writes the log?")
TURN_REQUEST: Final = "The function add in app.py subtracts. Read the file, then say what has to change."
LONG_ANSWER: Final = "Explain in at least 500 words what each of your tools is for and when you would use it."
STORY: Final = "Write a story of at least 500 words about a lighthouse keeper who finds a map."
TOPICS: Final = (
    "Describe how bread is baked, from the grain to the table.",
    "Explain to a child why the sky is blue and the evening red.",
    "Tell the history of a small harbour town over three centuries.",
    "Give advice to somebody who plants an apple tree for the first time.",
)

ENDLESS: Final = Regex(kind="Regex", pattern=r"(.|\n)*\x00")
"""Any text, and no end of turn before a character that no model writes: it holds a generation to its token limit."""

REAL_TURN: Final = json.dumps(
    {
        "thought": "The function add in app.py returns a - b, so the test fails. I look at both first.",
        "calls": [
            {"tool": "read", "input": {"path": "src/app.py", "offset": 1, "limit": 80}},
            {"tool": "grep", "input": {"pattern": "def test_add", "path": "tests"}},
            {"tool": "bash", "input": {"command": "python -m pytest -q tests/test_app.py"}},
        ],
    }
)
"""A turn as the agent's schema allows it."""


def turn_constraint() -> Json:
    """The schema of an agent's turn over all its tools, as aerix-server sends it without the help of `assist`."""
    return Json(kind="Json", schema_=turn_schema({name: tool.schema() for name, tool in registry().items()}))


def agent(request: str, instructions: str = "", mark: str = "") -> list[tuple[Role, str]]:
    """An agent's context: system segments with all tools, then the request. `mark` makes its start unlike others."""
    drafts = opening(embedded_prompts(), list(registry().values()), Path("/project"), instructions, brief=False)
    parts: list[tuple[Role, str]] = [(draft.role, draft.text) for draft in drafts]
    if mark:
        role, text = parts[0]
        parts[0] = (role, f"{mark}\n\n{text}")
    return [*parts, ("user", request)]


def instruction_text(chars: int) -> str:
    """So much of a real instruction file: this repository's own architecture page, again from its start if need be."""
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    return (page * (chars // len(page) + 1))[:chars]


def as_read(text: str) -> str:
    """A file as the tool `read` shows it."""
    return "\n".join(f"{number:6d}\t{line}" for number, line in enumerate(text.splitlines(), 1))


def edit_constraint() -> Json:
    """A turn of one edit of the sample file: `old` and `new` are free."""
    text = {"type": "string"}
    edit = _closed({"path": {"const": SAMPLE_PATH}, "old": text, "new": text})
    call = _closed({"tool": {"const": "edit"}, "input": edit})
    calls = {"type": "array", "minItems": 1, "maxItems": 1, "items": call}
    return Json(kind="Json", schema_=_closed({"thought": {"type": "string", "maxLength": 80}, "calls": calls}))


def edit_request() -> Parts:
    """The sample file as it was read, an example of an edit of a whole text, and the request to edit the sample so."""
    example = (
        "def area(width, height):\n    return width * height\n\n\n"
        "def shown(width, height):\n    return f'{width} x {height} cm'"
    )
    return [
        ("system", "You edit files. Each answer is one JSON object: a thought, and one call of the tool edit."),
        ("user", f"[read c1]\n{as_read(example)}\n\nIn geometry.py rename width to w everywhere."),
        ("assistant", _example("geometry.py", example, example.replace("width", "w"))),
        ("user", f"[read c2]\n{as_read(SAMPLE)}\n\nIn {SAMPLE_PATH} rename lines to basket everywhere."),
    ]


def rewrite_request() -> Parts:
    """The same, in free text."""
    return [
        ("system", "You edit files. Answer with the whole new file in one code block and nothing else."),
        ("user", f"{SAMPLE_PATH}:\n```python\n{SAMPLE}```\n\nRename lines to basket everywhere. Write the whole file."),
    ]


def _example(path: str, old: str, new: str) -> str:
    call = {"tool": "edit", "input": {"path": path, "old": old, "new": new}}
    return json.dumps({"thought": "I replace the text from its start to its end.", "calls": [call]})


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
