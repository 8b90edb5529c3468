"""The settings tree as dotted keys: which there are, what each takes, and the nearest one to a misspelling. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from aerix_server.config.settings import Settings, SettingsTree

Path = tuple[str, ...]


def _leaves(model: type[BaseModel], prefix: Path = ()) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        path = (*prefix, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _leaves(field.annotation, path)
        else:
            yield ".".join(path), field.annotation


# Every key with the type its value has.
KEYS: Mapping[str, Any] = dict(_leaves(Settings))
SECTIONS = frozenset(".".join(key.split(".")[:depth]) for key in KEYS for depth in range(1, key.count(".") + 1))


def nearest(key: str) -> str | None:
    """The valid key that a user most likely meant, or None when none is near."""
    found = difflib.get_close_matches(key, list(KEYS), n=1, cutoff=0.6)
    if found:
        return found[0]
    last: dict[str, str] = {known.rsplit(".", 1)[-1]: known for known in KEYS}
    found = difflib.get_close_matches(key.rsplit(".", 1)[-1], list(last), n=1, cutoff=0.8)
    return last[found[0]] if found else None


def unknown_key(key: str) -> str:
    meant = nearest(key)
    return f"unknown key {key}" + (f"; did you mean {meant}?" if meant else "; `aerix config show` lists the keys")


def flatten(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each value of a nested tree under its dotted key. A table that is no section is one value."""
    for name, value in tree.items():
        yield from _flatten(name, value)


def _flatten(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and key in SECTIONS:
        for name, inner in value.items():
            yield from _flatten(f"{key}.{name}", inner)
    else:
        yield key, value


def nest(values: Mapping[str, Any]) -> SettingsTree:
    """The opposite of `flatten`, for valid keys."""
    tree: SettingsTree = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[name] = value
    return tree


def fault(key: str, value: Any) -> str | None:
    """Why `key` cannot take `value`, as a part of a sentence, or None when it can."""
    if key in SECTIONS:
        return f"{key} is a table of settings, not a value"
    if key not in KEYS:
        return unknown_key(key)
    try:
        Settings.model_validate(nest({key: value}))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"{key}: {first['msg'][:1].lower()}{first['msg'][1:]}, not {_shown(value)}"
    return None


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:
        return "a value nested so deeply"
    return text if len(text) <= 60 else text[:57] + "..."
