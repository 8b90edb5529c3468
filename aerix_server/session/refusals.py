"""Taking files into a private index where git gives up at the first it cannot take (a filter fails, a named pipe)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aerix_server.config.bounds import GIT_REFUSALS
from aerix_server.session.repository import Repository
from aerix_server.tools.git import GitFailed

_TAKE = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")


def take(repository: Repository, index: Path, paths: Sequence[bytes]) -> dict[bytes, str]:
    """Take each file as it is on disk, also one that is gone; gives those git refuses, each with its words.

    Past GIT_REFUSALS, those not yet tried one by one count as refused. Raises GitFailed when git itself is at fault.
    """
    refused: dict[bytes, str] = {}
    waiting = [list(paths)] if paths else []
    while waiting:
        batch = waiting.pop()
        try:
            repository.run(_TAKE, index, b"".join(path + b"\0" for path in batch))
        except GitFailed as error:
            if error.status is None:
                raise
            if len(batch) == 1 or len(refused) >= GIT_REFUSALS:
                refused.update(dict.fromkeys(batch, str(error)))
            else:
                half = len(batch) // 2
                waiting += [batch[half:], batch[:half]]
    return refused
