"""Which diff a client means: the one kept of an ended request, else one made now. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from aerix_server.protocol.events import Snapshot
from aerix_server.protocol.messages import DiffGetParams, DiffResult
from aerix_server.protocol.outcomes import AerixError
from aerix_server.session.diff import diff_since
from aerix_server.session.diff_store import load_diff
from aerix_server.session.folders import SessionFiles
from aerix_server.session.shadow import earliest, read_shadow, shadow_folder

NOTHING_YET = "no request of this session has started yet"
UNFINISHED = "this request has not come to its end: its start is compared with the files as they are now"


def find_diff(
    params: DiffGetParams,
    files: SessionFiles,
    events: Sequence[dict[str, Any]],
    checkpoints: Path,
    touched_so_far: Callable[[str], Iterable[str]],
) -> DiffResult:
    """`touched_so_far` gives what a request that runs here has written. Raises AerixError not_found."""
    starts = {str(event.get("request")): event for event in events if event["type"] == "request.start"}
    if params.request is not None and params.request not in starts:
        raise AerixError("not_found", f"The session {params.session} has no request {params.request}.")
    if not starts:
        return DiffResult(files=[], untracked=[], unified="", notice=NOTHING_YET)
    cwd = next((Path(str(event.get("cwd"))) for event in events if event["type"] == "session.start"), None)
    if cwd is None:
        return DiffResult(files=[], untracked=[], unified="", notice="the log does not tell where the session worked")
    store = checkpoints / files.folder.name / "objects"
    if params.since == "session":
        touched = {path for request in starts for path in _touched(events, request, touched_so_far)}
        kept = earliest([read_shadow(shadow_folder(store, files.id, request)) for request in starts])
        return diff_since(cwd, store, _snapshot(next(iter(starts.values()))), sorted(touched), kept)
    request = params.request or list(starts)[-1]
    if ended := load_diff(files.diff(request)):
        return ended
    kept = read_shadow(shadow_folder(store, files.id, request))
    diff = diff_since(cwd, store, _snapshot(starts[request]), _touched(events, request, touched_so_far), kept)
    return diff.model_copy(update={"notice": "; ".join(filter(None, [UNFINISHED, diff.notice]))})


def _snapshot(start: dict[str, Any]) -> Snapshot:
    try:
        return Snapshot.model_validate(start.get("snapshot"))
    except ValidationError:
        return Snapshot(kind="none", notice="the log does not tell what this request started from")


def _touched(
    events: Sequence[dict[str, Any]], request: str, touched_so_far: Callable[[str], Iterable[str]]
) -> list[str]:
    """As the log tells it, and as the process knows it that runs the request."""
    ends = [event for event in events if event["type"] == "agent.end" and event.get("request") == request]
    logged = [str(path) for event in ends for path in event.get("files_touched") or ()]
    return list(dict.fromkeys([*logged, *touched_so_far(request)]))
