"""Where a model reference is loaded: `openai:` by the remote room, everything else by the engine of this machine."""

from __future__ import annotations

from caldrix.engine.api import EngineMember, LoadProgress, ServingFlags
from caldrix.engine.member import load_member
from caldrix.remote.address import is_remote
from caldrix.remote.load import load_remote


def load(reference: str, flags: ServingFlags, progress: LoadProgress, used_bytes: int) -> EngineMember:
    """See `caldrix.engine.api.Loader`."""
    if is_remote(reference):
        return load_remote(reference, flags, progress, used_bytes)
    return load_member(reference, flags, progress, used_bytes)
