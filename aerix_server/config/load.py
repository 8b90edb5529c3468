"""The settings of a folder: defaults, the user's file, the project's file, the environment, what a caller gives.

Later wins, key by key. A fault in what the user wrote stops with SettingsError; a fault in a project's file, which may
be someone else's, costs only the key, and is a notice. So is a key by which a project would loosen what is trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aerix_server.config.keys import KEYS, nest
from aerix_server.config.layers import Layer, Value, env_layer, file_layer, given_layer
from aerix_server.config.settings import WAITING, Settings
from aerix_server.config.trust import tightened
from aerix_server.protocol.folders import aerix_folder
from aerix_server.protocol.outcomes import BadParams

DEFAULT_SOURCE = "default"
GIVEN_SOURCE = "flags"


class SettingsError(BadParams):
    """Settings the user gave are wrong: one line for each fault, with its place. Exit code 64."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("settings", "\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Loaded:
    """`notices` are lines for the user, and so is `without_effect`: what was set and nothing acts on yet. `sources`
    tells for each key where its value came from."""

    settings: Settings
    notices: tuple[str, ...]
    sources: dict[str, str]
    without_effect: tuple[str, ...] = ()


def load_settings(cwd: Path | None, overrides: Mapping[str, Any], env: Mapping[str, str]) -> Loaded:
    """The settings for work in `cwd` (None: no project). Raises SettingsError."""
    user_path = user_file(env)
    user = file_layer(user_path)
    project_path = project_file(cwd) if cwd else None
    project = file_layer(project_path) if project_path else Layer({})
    environment, given = env_layer(env), given_layer(overrides, GIVEN_SOURCE)
    if problems := (*user.problems, *environment.problems, *given.problems):
        raise SettingsError(problems)

    base = {key: Value(value, DEFAULT_SOURCE, DEFAULT_SOURCE) for key, value in _defaults().items()} | dict(user.values)
    allowed, refused = _from_project(project, base, user_path)
    own = base | dict(environment.values) | dict(given.values)
    if problem := _ratio_problem(own):
        raise SettingsError((problem,))
    values = base | allowed | dict(environment.values) | dict(given.values)
    if problem := _ratio_problem(values):
        refused = (*refused, f"{problem}; the project's ratios are ignored")
        values |= {key: own[key] for key in _RATIOS}
    settings = Settings.model_validate(nest({key: value.value for key, value in values.items()}))
    ignored = tuple(f"{problem} (ignored)" for problem in project.problems)
    sources = {key: value.source for key, value in values.items()}
    return Loaded(settings, (*ignored, *refused), sources, _without_effect(values))


def user_file(env: Mapping[str, str]) -> Path:
    """`$XDG_CONFIG_HOME/aerix/config.toml`."""
    return aerix_folder(env, "CONFIG") / "config.toml"


def project_file(cwd: Path) -> Path | None:
    """The nearest `.aerix/config.toml` from the folder up to its repository's top, or of the folder alone."""
    folders = [cwd, *cwd.parents]
    top = next((index for index, folder in enumerate(folders) if (folder / ".git").exists()), 0)
    candidates = (folder / ".aerix" / "config.toml" for folder in folders[: top + 1])
    return next((path for path in candidates if path.exists()), None)


def _defaults() -> dict[str, Any]:
    def at(key: str) -> Any:
        node: Any = Settings()
        for name in key.split("."):
            node = getattr(node, name)
        return node

    return {key: at(key) for key in KEYS}


def _from_project(
    project: Layer, base: Mapping[str, Value], user_path: Path
) -> tuple[dict[str, Value], tuple[str, ...]]:
    """The project's values that may stand, and a notice for each that may not."""
    in_force = {key: value.value for key, value in base.items()}
    allowed: dict[str, Value] = {}
    notices: list[str] = []
    for key, item in project.values.items():
        may, value = tightened(key, item.value, in_force)
        if may:
            allowed[key] = Value(value, item.source, item.where)
        else:
            notices.append(
                f"{item.where}: {key} is not taken from a project's file, which may only tighten it; "
                f"to use it, set it in {user_path}"
            )
    return allowed, tuple(notices)


def _without_effect(values: Mapping[str, Value]) -> tuple[str, ...]:
    """A notice for each key that somebody set and nothing acts on yet: a rule must not seem to protect."""
    return tuple(
        f"{value.where}: {key} has no effect in this version"
        for key, value in values.items()
        if value.source != DEFAULT_SOURCE and key.startswith(WAITING)
    )


_RATIOS = ("context.soft_ratio", "context.target_ratio")


def _ratio_problem(values: Mapping[str, Value]) -> str | None:
    soft, target = (values[key] for key in _RATIOS)
    if target.value < soft.value:
        return None
    return (
        f"{target.where}: context.target_ratio ({target.value}) must be under context.soft_ratio "
        f"({soft.value}, from {soft.where}), or every turn would compact again"
    )
