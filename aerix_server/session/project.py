"""Which project a folder belongs to: the same one for every clone and worktree of a repository."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from aerix_server.config.bounds import GIT_REMOTE_TIMEOUT_S
from aerix_server.tools.git import GitFailed, git

_SCP = re.compile(r"(?:[^@/:]+@)?(?P<host>\[[^\]]+\]|[^/:]+):(?P<path>(?!//).+)")


@dataclass(frozen=True)
class Project:
    """`name` is the remote's host and path, else the top folder, else the folder; `key` is safe as a file name."""

    name: str
    key: str


def project_of(cwd: Path) -> Project:
    """Blocking, for at most 10 s. A repository whose git does not answer counts as a plain folder."""
    name = _remote_name(cwd) or _top(cwd) or str(cwd)
    return Project(name, project_key(name))


def project_key(name: str) -> str:
    """The name made safe for a file name, with a short hash of it."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[-80:].lstrip("-.")
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:10]
    return f"{safe}-{digest}" if safe else digest


def remote_name(url: str, top: Path) -> str | None:
    """Host and path of a remote's URL, without credentials, port and `.git`; a path on this machine is made whole."""
    url = url.strip()
    if "://" in url:
        try:
            parts = urlsplit(url)
            host, path = (parts.hostname or "").lower(), parts.path
        except ValueError:
            return None
        if parts.scheme == "file":
            host = ""
    elif match := _SCP.fullmatch(url):
        host, path = match["host"].lower(), "/" + match["path"].lstrip("/")
    else:
        host, path = "", str((top / url).resolve()) if url else ""
    path = path.rstrip("/").removesuffix(".git").rstrip("/")
    return f"{host}{path}" if path else host or None


def _remote_name(cwd: Path) -> str | None:
    listed = _quiet(lambda: git(["config", "--get-regexp", "-z", r"^remote\..*\.url$"], cwd, timeout_s=_HALF_S))
    urls: dict[str, str] = {}
    for entry in (listed or b"").decode("utf-8", "surrogateescape").split("\0"):
        key, _, url = entry.partition("\n")
        urls.setdefault(key.removeprefix("remote.").removesuffix(".url"), url)
    urls.pop("", None)
    if not urls:
        return None
    top = _top(cwd)
    return remote_name(urls.get("origin") or next(iter(urls.values())), Path(top)) if top else None


def _top(cwd: Path) -> str | None:
    shown = _quiet(lambda: git(["rev-parse", "--show-toplevel"], cwd, timeout_s=_HALF_S))
    return shown.decode("utf-8", "surrogateescape").removesuffix("\n") or None if shown else None


# Two look-ups share the bound.
_HALF_S = GIT_REMOTE_TIMEOUT_S / 2


def _quiet(call: Callable[[], bytes]) -> bytes | None:
    try:
        return call()
    except GitFailed:
        return None
