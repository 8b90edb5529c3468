"""What tests cannot tell of an attempt, one function a task.

Each is given the repository before, the attempt and its answer, and gives a sentence, or None when nothing is wrong.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

Check = Callable[[Path, Path, str], str | None]

OPTION_ROWS: Final = {"--root": "`.`", "--port": "`8090`", "--bind": "`127.0.0.1`", "--read-only": ""}
"""The options of update-docs, each with a default its row must name."""
STALE: Final = ("--directory",)


def renamed(_before: Path, attempt: Path, _answer: str) -> str | None:
    """No file says the old name, as a whole word; the longer one is still there."""
    texts = {path.relative_to(attempt).as_posix(): _text(path) for path in _sources(attempt)}
    for name, text in texts.items():
        if re.search(r"\bparse_line\b", text):
            return f"{name} still says parse_line"
    if "parse_lines" not in texts.get("README.md", ""):
        return "README.md says parse_lines no more"
    return None


def documented(before: Path, attempt: Path, _answer: str) -> str | None:
    """The table has a row for each option, nothing of the old one, and the rest of the page stays."""
    text = _text(attempt / "README.md")
    for option, default in OPTION_ROWS.items():
        row = next((line for line in text.split("\n") if line.startswith("|") and option in line), None)
        if row is None:
            return f"the table of README.md has no row for {option}"
        if default and default.strip("`") not in row.replace(option, ""):
            return f"the row for {option} does not name its default {default}"
    if stale := next((word for word in STALE if word in text), None):
        return f"README.md still says {stale}"
    kept = [line for line in _text(before / "README.md").split("\n") if line and "`" not in line and "8080" not in line]
    lost = next((line for line in kept if line not in text.split("\n")), None)
    return f"README.md lost the line {lost!r}" if lost else None


def removed(before: Path, attempt: Path, _answer: str) -> str | None:
    """The two functions are gone; everything else of the file is as it was."""
    gone = {"render_plain", "_pad"}
    try:
        was, now = (_definitions(folder / "table.py") for folder in (before, attempt))
    except SyntaxError as error:
        return f"table.py is no Python any more: {error.msg} in line {error.lineno}"
    if left := sorted(gone & now.keys()):
        return f"table.py still has {left[0]}"
    expected = {name: code for name, code in was.items() if name not in gone}
    for name in sorted(expected.keys() | now.keys()):
        if expected.get(name) != now.get(name):
            return f"{name} of table.py was changed, which nobody asked for"
    return None


def located(_before: Path, _attempt: Path, answer: str) -> str | None:
    """The answer names the right file and the key, and not the decoy as the place."""
    if "network.ini" not in answer:
        return "the answer does not name conf/network.ini"
    if "max_attempts" not in answer:
        return "the answer does not name the key max_attempts"
    return "the answer also names conf/upload.ini" if "upload.ini" in answer else None


def explained(_before: Path, _attempt: Path, answer: str) -> str | None:
    """The answer names the test that fails, no other as failing, and the rule that is missing."""
    if "test_year_1900" not in answer:
        return "the answer does not name test_year_1900"
    if "is_leap_year" not in answer:
        return "the answer does not name is_leap_year"
    if not re.search(r"\b(?:100|400)\b|centur", answer, re.IGNORECASE):
        return "the answer does not say that the rule for full centuries is missing"
    return None


CHECKS: Final[Mapping[str, Check]] = {
    "rename-function": renamed,
    "update-docs": documented,
    "remove-dead-code": removed,
    "where-configured": located,
    "explain-failing-test": explained,
}


def _sources(folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.suffix in (".py", ".md") and path.is_file()]
    return sorted(path for path in found if ".git" not in path.parts)


def _definitions(path: Path) -> dict[str, str]:
    """The code of each top-level statement by the name it defines, or by its place."""
    tree = ast.parse(_text(path))
    return {getattr(node, "name", ast.dump(node)): ast.dump(node) for node in tree.body}


def _text(path: Path) -> str:
    """The text of a file; empty when it is not there."""
    return path.read_text("utf-8", "replace") if path.is_file() else ""
