"""The configuration: defaults, and over them what the environment sets."""

import json
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "config"


def load(environment):
    """The configuration of an environment, as nested dicts."""
    return merged(_read("default"), _read(environment))


def merged(below, above):
    """`above` over `below`, section by section."""
    result = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def _read(name):
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
