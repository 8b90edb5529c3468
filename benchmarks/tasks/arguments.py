"""The words of `python -m benchmarks.tasks`."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from aerix_server.config.keys import KEYS
from aerix_server.protocol.events import Route

SEEDS: Final = (1, 2, 3)
WINDOW: Final = 8192
MAX_NEW_TOKENS: Final = 1024
TEMPERATURE: Final = 0.2
MAX_TURNS: Final = 20
LIMIT_S: Final = 300.0

AgentName = Literal["aerix", "aider"]


@dataclass(frozen=True)
class Arguments:
    """`model` None: nothing is run, and only files are compared."""

    model: str | None
    agent: AgentName
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: dict[str, str]
    route: str | None
    label: str
    out: Path | None
    keep: Path | None
    trace: bool
    compare: tuple[Path, ...]
    window: int
    threads: int | None
    max_new_tokens: int
    temperature: float
    max_turns: int
    limit_s: float
    root: Path
    aider: Path
    server: Path | None


def parse(words: list[str]) -> Arguments:
    """Raises SystemExit for wrong words."""
    parser = _parser()
    given = parser.parse_args(words)
    if given.model is None and not given.compare:
        parser.error("give --model REF to run the tasks, or --compare FILE to show what was run")
    settings = dict(given.set or ())
    if settings and given.agent != "aerix":
        parser.error("--set is for settings of aerix")
    shown = {name: value for name, value in vars(given).items() if name not in ("set", "compare", "label")}
    label = given.label or "; ".join([given.agent, *(f"{key}={value}" for key, value in settings.items())])
    return Arguments(**shown, settings=settings, compare=tuple(given.compare), label=label)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tasks", allow_abbrev=False)
    parser.description = "Has an agent work on small repositories, and tells what it solved and what that took."
    add = parser.add_argument
    add("--model", metavar="REF", help="a path to a .gguf file or a catalogue name")
    add("--agent", choices=get_args(AgentName), default="aerix", help="(default %(default)s)")
    add("--tasks", type=_names, default=(), metavar="A,B", help="only these (default: all)")
    add("--seeds", type=_numbers, default=SEEDS, metavar="1,2,3", help="a run of each task for each (default 1,2,3)")
    add("--set", type=_setting, action="append", metavar="KEY=VALUE", help="a setting of aerix; may be repeated")
    add("--route", choices=get_args(Route), help="aerix's route (default: the model chooses)")
    add("--label", metavar="NAME", help="what the runs are called in tables (default: agent and settings)")
    add("--out", type=Path, metavar="FILE", help="add every run to this file, a line of JSON each")
    add("--keep", type=Path, metavar="DIR", help="keep every run's repository, home and session log there")
    add("--trace", action="store_true", help="print the turns of each unsolved run")
    add("--compare", type=Path, nargs="+", default=[], metavar="FILE", help="show these runs side by side")
    add("--window", type=_count, default=WINDOW, metavar="N", help="context window, tokens (default %(default)s)")
    add("--threads", type=_count, metavar="N", help="of the engine (default: what it chooses)")
    add("--max-new-tokens", type=_count, default=MAX_NEW_TOKENS, metavar="N", help="of an answer (default %(default)s)")
    add("--temperature", type=_temperature, default=TEMPERATURE, metavar="T", help="(default %(default)s)")
    add("--max-turns", type=_count, default=MAX_TURNS, metavar="N", help="of aerix (default %(default)s)")
    add("--limit", dest="limit_s", type=_count, default=LIMIT_S, metavar="S", help="seconds of a run (default 300)")
    default_root = Path(tempfile.gettempdir()) / "aerix-trial"
    add("--root", type=_absolute, default=default_root, metavar="DIR", help="where it works (default %(default)s)")
    add("--aider", type=Path, default=Path("aider"), metavar="PATH", help="aider's command (default: on PATH)")
    add("--server", type=Path, metavar="PATH", help="aider's llama-server (default: on PATH, or in xllamacpp)")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(name) for name in _names(text))


def _setting(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or key not in KEYS:
        raise argparse.ArgumentTypeError(f"{text} is no KEY=VALUE of a setting; docs/settings.md lists them")
    return key, value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def _temperature(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 2:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 2")
    return value


def _absolute(text: str) -> Path:
    return Path(text).expanduser().absolute()
