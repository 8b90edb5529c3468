"""Model references: what a reference means, and the file of one that is on this disk. Nothing here uses a network."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

from caldrix.models.catalogue import CATALOGUE, Entry
from caldrix.models.choice import choose_file, choose_quantisation, is_sound, split_files
from caldrix.models.gguf_file import check_gguf
from caldrix.protocol.errors import Refused

HUB_PREFIX: Final = "hf:"
ENGINE_PREFIX: Final = "openai:"
WORD: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
HUB_REFERENCE: Final = re.compile(rf"hf:(?P<repo>{WORD}/{WORD})(:(?P<quantisation>{WORD})|/(?P<file>.+))?")


@dataclass(frozen=True)
class AtPath:
    """A file somewhere on this disk, as it was written."""

    path: Path


@dataclass(frozen=True)
class OnHub:
    """A model in a repository `ORG/NAME` of the hub: by its file's name, by its quantisation, or the only one."""

    repo: str
    file: str | None = None
    quantisation: str | None = None


Reference = Entry | OnHub | AtPath


def models_dir() -> Path:
    """Where models lie: `$XDG_CACHE_HOME/caldrix/models`."""
    return user_cache_path("caldrix") / "models"


def parse(reference: str) -> Reference:
    """What a reference means. Raises Refused("model_not_found") where it means nothing."""
    if reference in CATALOGUE:
        return CATALOGUE[reference]
    if reference.startswith(HUB_PREFIX):
        return _on_hub(reference)
    if reference.startswith(ENGINE_PREFIX):
        raise Refused(
            "model_not_found", f"{reference} is served by an engine elsewhere: it has no file to fetch or load"
        )
    if "/" in reference or reference.endswith(".gguf"):
        return AtPath(_at_home(reference))
    raise Refused(
        "model_not_found",
        f"{reference!r} is neither a path to a .gguf file, nor hf:ORG/REPO:QUANT, nor one of {', '.join(CATALOGUE)}",
    )


def _on_hub(reference: str) -> OnHub:
    found = HUB_REFERENCE.fullmatch(reference)
    file = found["file"] if found else None
    if not found or (file and not is_sound(file)):
        raise Refused(
            "model_not_found", f"{reference} does not name a model: write hf:ORG/REPO:QUANT or hf:ORG/REPO/FILE.gguf"
        )
    return OnHub(found["repo"], file, found["quantisation"])


def _at_home(reference: str) -> Path:
    try:
        return Path(reference).expanduser()
    except RuntimeError:  # `~name` of nobody: then it is a file's name
        return Path(reference)


def hub_folder(repo: str) -> Path:
    """Where the files of a repository lie, under the names that they have in it."""
    return models_dir() / "hf" / repo


def entry_file(entry: Entry) -> Path:
    """Where a catalogue model is put when it is fetched."""
    return models_dir() / f"{entry.name}.gguf"


def on_disk(reference: Reference) -> Path | None:
    """The (first) file of a model that is wholly on this disk; its contents are not looked at. Raises OSError."""
    if isinstance(reference, AtPath):
        return reference.path if _is_file(reference.path) else None
    if isinstance(reference, Entry):
        places = (_in_package(reference), entry_file(reference), _pulled_by_hub_name(reference))
        return next((place for place in places if place and place.is_file()), None)
    folder = hub_folder(reference.repo)
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*.gguf") if path.is_file()]
    return folder / hub_files(reference, names)[0] if _has_match(reference, names) else None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except ValueError:  # a NUL in the name
        return False


def _in_package(entry: Entry) -> Path | None:
    if not entry.package or not entry.package_file:
        return None
    # find_spec does not import the package: only its file is wanted, not what it depends on.
    spec = importlib.util.find_spec(entry.package)
    places = [Path(folder) / entry.package_file for folder in (spec.submodule_search_locations or [])] if spec else []
    return next((place for place in places if place.is_file()), None)


def _pulled_by_hub_name(entry: Entry) -> Path | None:
    return hub_folder(entry.repo) / entry.file if entry.repo and entry.file else None


def hub_files(reference: OnHub, names: list[str]) -> tuple[str, ...]:
    """Of a repository's file names, those of the model that is meant. Raises Refused("model_not_found")."""
    where = f"{HUB_PREFIX}{reference.repo}"
    if reference.file:
        return choose_file(where, names, reference.file)
    return choose_quantisation(where, names, reference.quantisation)


def _has_match(reference: OnHub, names: list[str]) -> bool:
    """Whether the files on disk answer the reference; a bare repository's may hold more models than are here."""
    if not reference.file and not reference.quantisation:
        return False
    try:
        return bool(hub_files(reference, names))
    except Refused:
        return False


def resolve(reference: str) -> Path:
    """The file of a model that is on this disk; the first one of a split model.

    Raises Refused (model_not_found, model_refused).
    """
    return located(reference, parse(reference))


def located(reference: str, parsed: Reference) -> Path:
    """The sound file of a parsed reference. Raises Refused (model_not_found, model_refused)."""
    try:
        path = on_disk(parsed)
    except OSError as error:
        raise Refused(
            "model_not_found", f"the model file for {reference} cannot be looked at: {error.strerror}"
        ) from error
    if path is None:
        raise Refused("model_not_found", _absent(reference, parsed))
    for name in split_files(path.name):
        part = path.with_name(name)
        if not part.is_file():
            raise Refused("model_refused", f"{path} is one file of a split model, and {part.name} is not beside it")
        check_gguf(part)
    return path.resolve()


def _absent(reference: str, parsed: Reference) -> str:
    if isinstance(parsed, AtPath):
        where = "" if str(parsed.path) == reference else f": {parsed.path}"
        return f"there is no model file for {reference}{where}"
    return f"{reference} is not on this disk: fetch it with `caldrix pull {reference}`"
