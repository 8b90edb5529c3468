"""What is known, what is on this disk, and what fits this machine: the rows of `caldrix models`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from caldrix.models.catalogue import CATALOGUE, Entry
from caldrix.models.choice import NO_MODELS, SPLIT, split_files
from caldrix.models.fit import default_budget
from caldrix.models.refs import HUB_PREFIX, models_dir, on_disk

SIZE_SHARE: Final = 1.25
FIXED_BYTES: Final = 768 << 20


@dataclass(frozen=True)
class Model:
    """A model that can be named. `needed` and `size` are bytes; None where the size is not known."""

    reference: str
    size: int | None
    licence: str | None
    window: int | None
    summary: str
    sha256: str | None
    path: Path | None
    needed: int | None
    fits: bool | None
    best: bool = False


def estimate(size: int) -> int:
    """Bytes that a member takes, from the size of its file alone: a quarter more, and 0.75 GiB.

    It stands for weights, the rows of the default window, compute buffers and the process. Beside the exact formula in
    `fit`, which needs the model's dimensions, it is within a quarter for the dense models of the catalogue.
    """
    return int(size * SIZE_SHARE) + FIXED_BYTES


def inventory(limit_bytes: int) -> list[Model]:
    """The catalogue in its order, then what else lies in the models' folder. `limit_bytes` is what members may take.

    The best is the last of the catalogue that fits: its order is by strength. What cannot be read counts as not there.
    """
    known = [_known(entry, limit_bytes) for entry in CATALOGUE.values()]
    fitting = [model for model in known if model.fits]
    rows = [_marked(model) if fitting and model is fitting[-1] else model for model in known]
    listed = {model.path for model in rows if model.path}
    return rows + [_unlisted(path, limit_bytes) for path in _others() if path not in listed]


def fits(needed: int, limit_bytes: int) -> bool:
    """Whether a member of this need can be loaded alone, with the prefix store that it gets unasked. Pure."""
    return needed + default_budget(limit_bytes) <= limit_bytes


def _known(entry: Entry, limit_bytes: int) -> Model:
    path = None
    with contextlib.suppress(OSError):
        path = on_disk(entry)
    size = entry.size if entry.size is not None else _size(path)
    return _model(entry.name, path, size, limit_bytes, entry)


def _unlisted(path: Path, limit_bytes: int) -> Model:
    return _model(_reference(path), path, _size(path), limit_bytes, None)


def _model(reference: str, path: Path | None, size: int | None, limit_bytes: int, entry: Entry | None) -> Model:
    needed = None if size is None else estimate(size)
    return Model(
        reference=reference,
        size=size,
        licence=entry.licence if entry else None,
        window=entry.window if entry else None,
        summary=entry.summary if entry else "",
        sha256=entry.sha256 if entry else None,
        path=path,
        needed=needed,
        fits=None if needed is None else fits(needed, limit_bytes),
    )


def _marked(model: Model) -> Model:
    return Model(**{**vars(model), "best": True})


def _size(path: Path | None) -> int | None:
    """All the files of a model together."""
    try:
        return sum(path.with_name(name).stat().st_size for name in split_files(path.name)) if path else None
    except OSError:
        return None


def _others() -> Iterator[Path]:
    """Every model file below the models' folder; of a split model the first file."""
    with contextlib.suppress(OSError):
        for path in sorted(models_dir().rglob("*.gguf")):
            found = SPLIT.search(path.name)
            if path.is_file() and not NO_MODELS.search(path.name) and (not found or int(found[1]) == 1):
                yield path


def _reference(path: Path) -> str:
    """How to name a file of the models' folder."""
    inside = path.relative_to(models_dir()).parts
    return HUB_PREFIX + "/".join(inside[1:]) if inside[0] == "hf" and len(inside) > 3 else str(path)
