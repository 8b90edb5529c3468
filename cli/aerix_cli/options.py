"""Words of the command line → what to do. No effects but reading the schema file."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

from aerix_server import __version__
from aerix_server.protocol.events import Route

Format = Literal["text", "json", "stream-json"]
Color = Literal["auto", "always", "never"]

NO_SCREEN = (
    'The interactive screen is not in this version. Run one request with: aerix -p "what to do" (see aerix --help).'
)
EPILOG = """\
exit codes:
  0    final: the request was done
  1    failed or killed
  2    a budget was used up
  3    refused by a hook or a rule
  4    the pool is unavailable, or it refused the model
  64   wrong usage or settings
  130  cancelled (Ctrl-C)
  141  the reader of the output went away

other commands:
  aerix pool status [--json]   what the inference pool holds
"""


class UsageError(Exception):
    """Wrong words; exit code 64. `usage` is the short usage text, "" where it would not help."""

    def __init__(self, message: str, usage: str = "") -> None:
        super().__init__(message)
        self.usage = usage


@dataclass(frozen=True)
class Print:
    """One request. `prompt` None or "-": it is read from stdin."""

    prompt: str | None
    format: Format
    schema: dict[str, Any] | None
    cwd: str
    model: str | None
    max_turns: int | None
    route: Route | None
    quiet: bool
    color: Color


@dataclass(frozen=True)
class PoolStatus:
    json: bool


Command = Print | PoolStatus


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, self.format_usage())


def parse(words: Sequence[str]) -> Command:
    """Raises UsageError; SystemExit(0) after --help and --version, which print to stdout."""
    if words and words[0] == "pool":
        return _parse_pool(words[1:])
    parser = _parser()
    found = parser.parse_args(list(words))
    if not found.print:
        raise UsageError(NO_SCREEN)
    return Print(
        prompt=None if found.prompt is None else _utf8(found.prompt),
        format=found.output_format,
        schema=None if found.output_schema is None else read_schema(found.output_schema),
        cwd=_folder(found.directory),
        model=None if found.model is None else _model(found.model),
        max_turns=found.max_turns,
        route=found.route,
        quiet=found.quiet,
        color=found.color,
    )


def read_schema(path: str) -> dict[str, Any]:
    """The JSON object in the file. Raises UsageError that names the file."""
    try:
        value = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"--output-schema {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--output-schema {path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"--output-schema {path} must hold a JSON object, which a schema is")
    return value


def _parser() -> _Parser:
    parser = _Parser(
        prog="aerix",
        description="A coding agent on your own machine and models.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("prompt", nargs="?", metavar="PROMPT", help='what to do; "-", or none with -p: read it from stdin')
    add("-p", "--print", action="store_true", help="run one request, print its answer and its diff, and leave")
    add("--output-format", choices=get_args(Format), default="text", metavar="FORMAT",
        help="text (default), json: one object, stream-json: every event a line, the result last")  # fmt: skip
    add("--output-schema", metavar="FILE", help="the answer must be JSON of this JSON Schema")
    add("-C", dest="directory", metavar="DIR", help="work in this folder")
    add("--model", metavar="REF", help="a .gguf file or a catalogue name")
    add("--max-turns", type=_count, metavar="N", help="the most turns of the agent, at least 1")
    add("--route", choices=get_args(Route), metavar="NAME", help="answer, edit, investigate or plan; not given: the model chooses")  # fmt: skip  # noqa: E501
    add("--quiet", action="store_true", help="no progress on stderr; notices and errors stay")
    add("--color", choices=get_args(Color), default="auto", metavar="WHEN", help="auto (default), always, never")
    add("--in-place", action="store_true", help="accepted; work is always done in place")
    add("--standalone", action="store_true", help="accepted; the server is always a child of this command")
    add("--version", action="version", version=f"aerix {__version__}")
    return parser


def _parse_pool(words: Sequence[str]) -> PoolStatus:
    parser = _Parser(prog="aerix pool", description="The inference pool.", allow_abbrev=False)
    parser.add_argument("action", choices=["status"], metavar="status", help="what the pool holds")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return PoolStatus(json=parser.parse_args(list(words)).json)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number of at least 1")
    return int(text)


def _folder(given: str | None) -> str:
    """The absolute path. Raises UsageError."""
    try:
        path = Path(given or ".").resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageError(f"-C {given or '.'}: there is no such folder") from error
    if not path.is_dir():
        raise UsageError(f"-C {given}: this is no folder")
    text = os.fsencode(path)
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the folder's path is not UTF-8: {text!r}") from error


def _model(given: str) -> str:
    """A file is named as seen from here, not from the folder of -C."""
    if not given.strip():
        raise UsageError("--model must not be empty")
    text = _utf8(given)
    if text.endswith(".gguf") and ":" not in text:
        return str(Path(text).expanduser().absolute())
    return text


def _utf8(argument: str) -> str:
    """The argument's bytes as UTF-8, whatever the locale made of them."""
    return os.fsencode(argument).decode("utf-8", "replace")
