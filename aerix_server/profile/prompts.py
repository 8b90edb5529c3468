"""The prompts a release embeds: one Markdown file each, read once."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Final

PROMPT_NAMES: Final = ("system", "routing", "planner", "brief", "verifier", "compact", "reflect")


@functools.cache
def embedded_prompts() -> Mapping[str, str]:
    """Each prompt's text by its name, without the closing newline."""
    folder = files(__package__) / "prompts"
    return MappingProxyType({name: (folder / f"{name}.md").read_text("utf-8").strip() for name in PROMPT_NAMES})


def fill(template: str, values: Mapping[str, object]) -> str:
    """The template with each `{name}` of `values` put in; other braces stay as they are."""
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", str(value))
    return template
