"""One layer of settings each: a TOML file, the environment, and what a caller gives; as dotted keys and problems."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aerix_server.config.keys import KEYS, SECTIONS, fault, flatten
from aerix_server.config.toml_lines import KEY_PARTS, has_deep_key, key_lines

ENV_PREFIX = "AERIX_"
FILE_BYTES = 256 * 1024
FAULTS_TOLD = 20
"""Of one layer, each a line; of the rest only how many they are."""


@dataclass(frozen=True)
class Value:
    """A value of a key, and the place it came from: `where` for a message, `source` for `config show`."""

    value: Any
    source: str
    where: str


@dataclass(frozen=True)
class Layer:
    """Good values by key; `problems` are whole lines for the user, one for each value that was not taken."""

    values: Mapping[str, Value]
    problems: tuple[str, ...] = ()


def _checked(items: Iterable[tuple[str, Value]]) -> Layer:
    values: dict[str, Value] = {}
    problems: list[str] = []
    untold = 0
    for key, item in items:
        if key not in KEYS and len(problems) >= FAULTS_TOLD:
            untold += 1
        elif reason := fault(key, item.value):
            problems.append(f"{item.where}: {reason}")
        else:
            values[key] = item
    if untold:
        problems.append(f"and {untold} more keys that are not known")
    return Layer(values, tuple(problems))


def file_layer(path: Path) -> Layer:
    """The settings of a file; empty when there is none."""
    try:
        text = _text(path)
    except FileNotFoundError:
        return Layer({})
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return Layer({}, (f"{path}: cannot be read: {reason}",))
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return Layer({}, (f"{path}: not valid TOML: {str(error)[:1].lower()}{str(error)[1:]}",))
    line_of = key_lines(text)
    return _checked((key, Value(value, str(path), _place(path, line_of(key)))) for key, value in flatten(tree))


def _text(path: Path) -> str:
    """Raises OSError, and ValueError for what is no text of a sensible size."""
    if not path.is_file():
        if path.exists():
            raise ValueError("it is not a file")
        raise FileNotFoundError(path)
    if path.stat().st_size > FILE_BYTES:
        raise ValueError(f"it is larger than {FILE_BYTES} bytes")
    try:
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 at byte {error.start}") from error
    if has_deep_key(text):
        raise ValueError(f"it has a key of more than {KEY_PARTS} parts")
    return text


def _place(path: Path, line: int | None) -> str:
    return f"{path}:{line}" if line else str(path)


def given_layer(tree: Mapping[str, Any], name: str) -> Layer:
    """What a caller gives: nested tables or dotted keys."""
    return _checked((key, Value(value, name, name)) for key, value in flatten(tree))


def env_layer(env: Mapping[str, str]) -> Layer:
    """`AERIX_MAIN_MODEL` sets main.model. An empty variable is as good as none.

    Other AERIX_ variables are not ours to judge, unless their name begins like a section or is nearly a key's.
    """
    names = {ENV_PREFIX + key.upper().replace(".", "_"): key for key in KEYS}
    items: list[tuple[str, Value]] = []
    problems: list[str] = []
    for name in sorted(env):
        if not name.startswith(ENV_PREFIX) or not env[name]:
            continue
        if name in names:
            items.append((names[name], Value(_parsed(names[name], env[name]), name, name)))
        elif meant := _misspelt(name, names):
            problems.append(f"{name}: no such setting; did you mean {meant}?")
    layer = _checked(items)
    return Layer(layer.values, (*problems, *layer.problems))


def _misspelt(name: str, names: Mapping[str, str]) -> str | None:
    section = any(name.startswith(f"{ENV_PREFIX}{section.upper()}_") for section in SECTIONS if "." not in section)
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.0 if section else 0.85)
    return found[0] if found else None


def _parsed(key: str, text: str) -> Any:
    """The text as the key's type. What cannot be read as TOML stays text, for the check to name."""
    if KEYS[key] in (str, str | None) or _is_choice(key, text):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _is_choice(key: str, text: str) -> bool:
    return text in getattr(KEYS[key], "__args__", ())
