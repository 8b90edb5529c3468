"""Writes docs/settings.md from the settings tree: `python docs/generate.py`; `--check` fails when it is stale."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from aerix_server.config.settings import TRUSTED_KEYS, WAITING, Settings

PAGE = Path(__file__).with_name("settings.md")

HEAD = """\
# Settings

Made by `docs/generate.py` from `aerix_server/config/settings.py`; change it there.

Settings are TOML. Later wins, key by key: the defaults below; your `$XDG_CONFIG_HOME/aerix/config.toml` (usually
`~/.config/aerix/config.toml`); a project's `.aerix/config.toml`; environment variables such as `AERIX_MAIN_MODEL` for
`main.model`; what a client or a flag gives. An unknown key or a value that does not
fit is named with its file and line.

A project's file may make the keys marked **T** stricter, never looser; what it was refused is a notice.
Keys marked **W** (they wait) are read and checked, and nothing acts on them yet; setting one is a notice.

```toml
[main]
model = "/path/to/model.gguf"

[context]
max_new_tokens = 1024
```
"""

BOUNDS = {"Ge": "at least {0.ge}", "Gt": "above {0.gt}", "Le": "at most {0.le}", "Lt": "below {0.lt}"}


def page() -> str:
    """The whole page as Markdown."""
    rows = [f"| `{key}` | {cells} |" for key, cells in _rows(Settings, "")]
    return "\n".join([HEAD, "| key | default | takes | | meaning |", "|---|---|---|---|---|", *rows, ""])


def _rows(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    for name, field in section.model_fields.items():
        key = prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _rows(field.annotation, f"{key}.")
        else:
            yield key, " | ".join([_default(field), _takes(field), _marks(key), _meaning(key, field, section)])


def _default(field: FieldInfo) -> str:
    return "none" if field.default is None else f"`{json.dumps(field.default)}`"


def _takes(field: FieldInfo) -> str:
    bounds = [BOUNDS[type(limit).__name__].format(limit) for limit in field.metadata]
    return ", ".join([_type(field.annotation), *bounds])


def _type(annotation: Any) -> str:
    names = {bool: "true or false", int: "whole number", float: "number", str: "text", type(None): "none"}
    if annotation in names:
        return names[annotation]
    words = get_args(annotation)
    if get_origin(annotation) is list:
        return f"list of {_type(words[0])}s"
    return " or ".join(f"`{word}`" if isinstance(word, str) else _type(word) for word in words)


def _marks(key: str) -> str:
    marks = ("T" if key in TRUSTED_KEYS else "", "W" if key.startswith(WAITING) else "")
    return " ".join(f"**{mark}**" for mark in marks if mark)


def _meaning(key: str, field: FieldInfo, section: type[BaseModel]) -> str:
    text = field.description or section.__doc__
    if not text:
        raise ValueError(f"{key} has no docstring in aerix_server/config/settings.py")
    return " ".join(text.split()).replace("|", "\\|")


def main(words: list[str]) -> int:
    text = page()
    if "--check" not in words:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write("docs/settings.md is stale: run `./run python docs/generate.py`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
