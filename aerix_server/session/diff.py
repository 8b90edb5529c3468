"""What a request changed: the files as they are against those it started from. Blocking.

In a repository, `files` and `unified` hold what git knows, and files that were untracked when the snapshot was taken:
their text of then is in it, so only the change since is shown. A file that is new and that git does not know is named
in `untracked`, its text nowhere. So is a touched file that is ignored, too large for the snapshot, in a repository
inside this one, or outside; and if it was there before, its change is shown from the copy kept before a tool first
wrote it. Where there is no repository all comes from such copies, new files too, and `untracked` has the rest.

Paths are relative to the repository's top, or the working directory where there is none; those outside are absolute.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from aerix_server.protocol.events import DiffStat, Snapshot
from aerix_server.protocol.messages import DiffResult
from aerix_server.session import compare
from aerix_server.session.compare import Compared, joined
from aerix_server.session.git_diff import GitPart, git_part
from aerix_server.session.patch import display, some_names
from aerix_server.session.shadow import Kept
from aerix_server.session.shadow_diff import Looked, Pair, compare_pairs, look
from aerix_server.tools.git import GitFailed
from aerix_server.tools.names import unescape_name

UNTRACKED_NAMED = 1000
_ROOT = Path("/")


def diff_since(
    cwd: Path, store: Path, snapshot: Snapshot, touched: Iterable[str], kept: Sequence[Kept] = ()
) -> DiffResult:
    """`touched` are the paths the tools of the request wrote, absolute or relative to `cwd`; `kept` the copies made
    before they did. Never raises: a notice says what is missing."""
    names = list(touched)
    part = git_part(cwd, store, snapshot, asked=bool(names or kept))
    looked = _uncovered(look(kept), part)
    shown = _shown(looked, part)
    whole, failed = _joined(part, shown)
    if failed:
        shown = []
    named = {_name(path, part.top) for path in _to_name(cwd, names, looked, shown, part)}
    untracked = sorted(named | set(map(display, part.new)))
    notices = [*part.notices, failed, *_gaps(whole, looked, len(untracked))]
    return DiffResult(
        files=list(whole.files),
        untracked=untracked[:UNTRACKED_NAMED],
        unified=whole.unified.decode("utf-8", "replace"),
        notice="; ".join(dict.fromkeys(filter(None, notices))) or None,
    )


def _gaps(whole: Compared, looked: Looked, untracked: int) -> Iterator[str]:
    if whole.missing:
        yield (
            f"the diff is over {compare.UNIFIED_BYTES >> 20} MiB: the text of {whole.missing} of {len(whole.files)} "
            "files is left out"
        )
    if looked.unknown:
        names, why = some_names(map(str, looked.unknown)), next(iter(looked.unknown.values()))
        yield f"what changed in {names} is not known: {why}"
    if untracked > UNTRACKED_NAMED:
        yield f"{untracked} untracked files changed, of which {UNTRACKED_NAMED} are named"


def stat_of(diff: DiffResult) -> DiffStat:
    """As `git diff --numstat` counts."""
    return DiffStat(
        added=sum(file.added for file in diff.files),
        removed=sum(file.removed for file in diff.files),
        files=len(diff.files),
    )


def _uncovered(looked: Looked, part: GitPart) -> Looked:
    """Without the files that git compared."""
    return Looked(
        tuple(pair for pair in looked.changed if not _covered(pair.path, part)),
        looked.same,
        {path: why for path, why in looked.unknown.items() if not _covered(path, part)},
    )


def _shown(looked: Looked, part: GitPart) -> list[Pair]:
    """Those whose change is told: in a repository, a file git does not know must have been there before."""
    return [pair for pair in looked.changed if part.covers is None or pair.before is not None]


def _joined(part: GitPart, pairs: Sequence[Pair]) -> tuple[Compared, str | None]:
    """git's part and the pairs', those inside the top first; and why the pairs could not be compared."""
    whole = part.compared
    inside = [pair for pair in pairs if pair.path.is_relative_to(part.top)]
    outside = [pair for pair in pairs if not pair.path.is_relative_to(part.top)]
    try:
        for root, group in ((part.top, inside), (_ROOT, outside)):
            room = max(0, compare.UNIFIED_BYTES - len(whole.unified))
            whole = joined([whole, compare_pairs(group, root, room)])
    except (GitFailed, OSError) as error:
        names = some_names(_name(pair.path, part.top) for pair in pairs)
        return part.compared, f"what changed in {names} is not known: {error}"
    return whole, None


def _to_name(cwd: Path, touched: Iterable[str], looked: Looked, shown: Sequence[Pair], part: GitPart) -> list[Path]:
    """Touched files that exist and that git does not know; where there is no repository, those that are not shown."""
    told = {pair.path for pair in shown} if part.covers is None else set()
    changed = [pair.path for pair in looked.changed if pair.now is not None and pair.path not in told]
    noted = looked.same | told | {pair.path for pair in looked.changed}
    others = [path for path in (_touched(cwd, name) for name in touched) if os.path.lexists(path)]
    unnoted = [path for path in others if noted.isdisjoint((path, Path(os.path.realpath(path))))]
    return [*changed, *looked.unknown, *(path for path in unnoted if not _covered(path, part))]


def _touched(cwd: Path, name: str) -> Path:
    """A touched path as the tools tell it: its folder's links are followed, not its own."""
    path = Path(os.path.normpath(cwd / name))
    if not os.path.lexists(path) and (plain := unescape_name(name)):
        path = Path(os.path.normpath(cwd / plain))
    return Path(os.path.realpath(path.parent)) / path.name


def _covered(path: Path, part: GitPart) -> bool:
    if part.covers is None or not path.is_relative_to(part.top):
        return False
    return os.fsencode(path.relative_to(part.top)) in part.covers


def _name(path: Path, top: Path) -> str:
    return str(path.relative_to(top) if path.is_relative_to(top) else path)
