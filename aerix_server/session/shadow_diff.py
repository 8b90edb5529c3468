"""What became of the files a request kept copies of: their copies against what is there now. Blocking.

Both states become trees of a throwaway repository, so that git compares and tells them as it does everything else.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dulwich.index import commit_tree
from dulwich.object_store import DiskObjectStore
from dulwich.objects import Blob

from aerix_server.config.bounds import SHADOW_FILE_BYTES, SHADOW_TOTAL_BYTES
from aerix_server.session.compare import NOTHING, Compared, compare_trees
from aerix_server.session.shadow import Kept
from aerix_server.tools.git import OUTPUT_BYTES, git

_LINK = 0o120000
_PLAIN = 0o100644
_RUNNABLE = 0o100755


@dataclass(frozen=True)
class Content:
    """A file as git sees it: its mode, and its bytes or a link's target."""

    mode: int
    data: bytes


@dataclass(frozen=True)
class Pair:
    """A path before and now; None where there is no file (a folder and a device are none)."""

    path: Path
    before: Content | None
    now: Content | None


@dataclass(frozen=True)
class Looked:
    """`changed` are those that differ, `same` those that do not; `unknown` exist, but what they were or are cannot be
    told: path → why."""

    changed: tuple[Pair, ...]
    same: frozenset[Path]
    unknown: Mapping[Path, str]


def look(kept: Iterable[Kept]) -> Looked:
    """The kept files as they were and as they are; at most SHADOW_TOTAL_BYTES of them are held."""
    changed: list[Pair] = []
    same: set[Path] = set()
    unknown: dict[Path, str] = {}
    held = 0
    for item in kept:
        if item.kind == "unknown":
            if os.path.lexists(item.path):
                unknown[item.path] = item.reason
            continue
        try:
            pair = Pair(item.path, _before(item), _now(item.path))
        except OSError as error:
            unknown[item.path] = error.strerror or str(error)
            continue
        size = sum(len(content.data) for content in (pair.before, pair.now) if content)
        if pair.before == pair.now:
            same.add(item.path)
        elif held + size > SHADOW_TOTAL_BYTES:
            unknown[item.path] = f"the changed files have over {SHADOW_TOTAL_BYTES >> 20} MiB in all"
        else:
            changed.append(pair)
            held += size
    return Looked(tuple(changed), frozenset(same), unknown)


def compare_pairs(pairs: Sequence[Pair], root: Path, room: int) -> Compared:
    """`pairs` lie below `root`; with the root of the file system their names are absolute. Raises GitFailed, OSError"""
    if not pairs:
        return NOTHING
    with _throwaway() as folder:
        store = DiskObjectStore(folder / "objects", loose_compression_level=1)
        before = _tree(store, root, ((pair.path, pair.before) for pair in pairs))
        now = _tree(store, root, ((pair.path, pair.now) for pair in pairs))
        store.close()

        def run(arguments: Sequence[str], *, output_bytes: int = OUTPUT_BYTES) -> bytes:
            return git(arguments, folder, extra={"GIT_DIR": str(folder)}, output_bytes=output_bytes)

        return compare_trees(run, before, now, room, absolute=root == Path(root.anchor))


def _before(kept: Kept) -> Content | None:
    if kept.copy is None:
        return None
    mode = _LINK if kept.kind == "link" else _mode(kept.mode)
    return Content(mode, kept.copy.read_bytes())


def _now(path: Path) -> Content | None:
    """Raises OSError, for a file that has grown too large as well."""
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return Content(_LINK, os.fsencode(path.readlink()))
        if not stat.S_ISREG(status.st_mode):
            return None
        # A named pipe that takes the file's place meanwhile must not hold us.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(handle, "rb") as file:
        data = file.read(SHADOW_FILE_BYTES + 1)
    if len(data) > SHADOW_FILE_BYTES:
        raise OSError(f"it has over {SHADOW_FILE_BYTES >> 20} MiB now")
    return Content(_mode(status.st_mode), data)


def _mode(permissions: int) -> int:
    return _RUNNABLE if permissions & stat.S_IXUSR else _PLAIN


@contextmanager
def _throwaway() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="aerix-compare-") as name:
        folder = Path(name)
        git(["init", "--quiet", "--bare", "--template=", "--object-format=sha1", "."], folder)
        yield folder


def _tree(store: DiskObjectStore, root: Path, contents: Iterable[tuple[Path, Content | None]]) -> str:
    entries: dict[bytes, Content] = {}
    folders: set[bytes] = set()
    for path, content in contents:
        name = os.fsencode(path.relative_to(root))
        above = _folders(name)
        # States are noted at different times. Of a file and a folder in one place the first noted one counts.
        if content is not None and name not in folders and entries.keys().isdisjoint(above):
            entries[name] = content
            folders.update(above)
    blobs = []
    for name, content in entries.items():
        blob = Blob.from_string(content.data)
        store.add_object(blob)
        blobs.append((name, blob.id, content.mode))
    return commit_tree(store, blobs).decode("ascii")


def _folders(name: bytes) -> list[bytes]:
    """Those above a name, the root aside."""
    parts = name.split(b"/")
    return [b"/".join(parts[:count]) for count in range(1, len(parts))]
