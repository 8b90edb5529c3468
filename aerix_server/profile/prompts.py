"""The prompts a release embeds: one Markdown file each, read once."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Final

_PLACE: Final = re.compile(r"\{(\w+)\}")
PROMPT_NAMES: Final = ("system", "routing", "planner", "brief", "verifier", "compact", "reflect")


@functools.cache
def embedded_prompts() -> Mapping[str, str]:
    """Each prompt's text by its name, without the closing newline."""
    folder = files(__package__) / "prompts"
    return MappingProxyType({name: (folder / f"{name}.md").read_text("utf-8").strip() for name in PROMPT_NAMES})


def fill(template: str, values: Mapping[str, object]) -> str:
    """The template with each `{name}` of `values` put in; other braces stay, also those in a value."""
    return _PLACE.sub(lambda found: str(values.get(found[1], found[0])), template)
