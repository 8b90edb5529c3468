"""Which files of a repository make up the model that a reference means. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from caldrix.protocol.errors import Refused

SPLIT: Final = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)
NO_MODELS: Final = re.compile(r"(^|/)[^/]*(mmproj|imatrix)[^/]*$", re.IGNORECASE)
"""Projectors for pictures and tables for quantising: GGUF files that no text comes from."""
LISTED: Final = 24


def is_sound(name: str) -> bool:
    """Whether it is a GGUF file's name that stays inside its repository's folder."""
    return (
        name.lower().endswith(".gguf") and not {"\0", "\\"} & set(name) and not {"", ".", ".."} & set(name.split("/"))
    )


def split_files(name: str) -> tuple[str, ...]:
    """All the files of a split model, the first one first; `name` alone where it is no part of a split one."""
    found = SPLIT.search(name)
    if not found:
        return (name,)
    count = int(found[2])
    return tuple(SPLIT.sub(f"-{number:05d}-of-{found[2]}", name) for number in range(1, count + 1))


def choose_file(where: str, names: Iterable[str], file: str) -> tuple[str, ...]:
    """The files of the model whose file (or any part of it) is called `file`.

    Raises Refused("model_not_found") with what there is.
    """
    there = _models(names)
    if file not in there:
        raise _refusal(f"{where} has no file {file}", there)
    return _whole(where, split_files(file), there)


def choose_quantisation(where: str, names: Iterable[str], quantisation: str | None) -> tuple[str, ...]:
    """The files of the one model whose name holds `quantisation`, in any case; of the only model where that is None.

    Where a repository has a model whole and split, the whole one. Raises Refused("model_not_found") with what there is.
    """
    there = _models(names)
    models: dict[str, tuple[str, ...]] = {}
    for name in sorted(there, key=lambda name: bool(SPLIT.search(name))):
        if quantisation is None or _holds(name, quantisation):
            models.setdefault(SPLIT.sub("", name).lower(), split_files(name))
    what = f"of quantisation {quantisation}" if quantisation else "that is a model"
    if not models:
        raise _refusal(f"{where} has no file {what}", there)
    if len(models) > 1:
        several = f"{len(models)} models" + (f" {what}" if quantisation else "")
        raise _refusal(f"{where} has {several}: name the file, as in {where}/FILE", there)
    return _whole(where, next(iter(models.values())), there)


def _models(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if is_sound(name) and not NO_MODELS.search(name))


def _holds(name: str, quantisation: str) -> bool:
    """Whether it stands in the name as a word: `Q4_K` is not in `x-Q4_K_M.gguf`, nor `Q4_XS` in `x-IQ4_XS.gguf`."""
    return bool(re.search(rf"(?<![a-z0-9]){re.escape(quantisation)}(?![a-z0-9_])", name, re.IGNORECASE))


def _whole(where: str, files: tuple[str, ...], there: list[str]) -> tuple[str, ...]:
    missing = [name for name in files if name not in there]
    if missing:
        raise _refusal(f"{where} lacks {len(missing)} of the {len(files)} files of this model: {missing[0]}", there)
    return files


def _refusal(sentence: str, there: list[str]) -> Refused:
    shown = ", ".join(there[:LISTED]) + (f" and {len(there) - LISTED} more" if len(there) > LISTED else "")
    return Refused("model_not_found", f"{sentence}; {f'there are: {shown}' if there else 'it holds no GGUF model'}")
