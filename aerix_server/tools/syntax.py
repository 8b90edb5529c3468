"""Whether a change made a file stop being valid Python, JSON or TOML, told in one line. Nothing is refused for it."""

from __future__ import annotations

import ast
import json
import re
import threading
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from aerix_server.config.bounds import SYNTAX_FILE_BYTES
from aerix_server.tools.text import NotText, decode

_WARNINGS = threading.Lock()
"""Filters of warnings are the process's: one thread changes them at a time."""
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)\Z")


@dataclass(frozen=True)
class Fault:
    """`line` counts from 1, as read counts."""

    line: int
    message: str


def syntax_note(name: str, before: bytes | None, after: bytes) -> str:
    """`\\n[syntax] line N: …` for a file that is not valid after a change and was before, or was not there; else
    empty. `name` is the file's; its ending tells the language."""
    find_fault = _LANGUAGES.get(PurePath(name).suffix.lower())
    if find_fault is None or max(len(after), len(before or b"")) > SYNTAX_FILE_BYTES:
        return ""
    fault = _fault(find_fault, after)
    if fault is None or (before and _fault(find_fault, before) is not None):
        return ""
    return f"\n[syntax] line {fault.line}: {fault.message}"


def _fault(find_fault: Callable[[bytes], Fault | None], data: bytes) -> Fault | None:
    """None also for what is nested so deeply that the parser gives up: nothing is known of it."""
    try:
        return find_fault(data)
    except (RecursionError, MemoryError):
        return None


def _python(data: bytes) -> Fault | None:
    try:
        with _WARNINGS, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(data)
    except SyntaxError as error:
        return Fault(_line_of(data, error.lineno or 1), error.msg)
    except ValueError as error:
        return Fault(1, str(error))
    return None


def _line_of(data: bytes, line: int) -> int:
    """Python ends a line at a lone `\\r` too, and no other tool here does."""
    ends = re.finditer(rb"\r\n?|\n", data)
    start = 0
    for _ in range(line - 1):
        end = next(ends, None)
        start = end.end() if end else start
    return data.count(b"\n", 0, start) + 1


def _json(data: bytes) -> Fault | None:
    try:
        json.loads(decode(data).text)
    except json.JSONDecodeError as error:
        return Fault(error.lineno, error.msg)
    except (NotText, ValueError) as error:
        return Fault(1, str(error))
    return None


def _toml(data: bytes) -> Fault | None:
    try:
        text = decode(data).text
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _TOML_PLACE.search(str(error))
        line = int(place[1]) if place and place[1] else text.count("\n") + 1
        return Fault(line, _TOML_PLACE.sub("", str(error)))
    except (NotText, ValueError) as error:
        return Fault(1, str(error))
    return None


_LANGUAGES = {".py": _python, ".pyi": _python, ".json": _json, ".toml": _toml}
