"""Models from the Hugging Face hub: what a repository holds, and a download that goes on where it stopped.

The library speaks to the hub: where it is (HF_ENDPOINT), who we are (HF_TOKEN), whether it may be asked
(HF_HUB_OFFLINE), and what an error means. The file itself is streamed here, since the library no longer resumes one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import httpx2
from huggingface_hub import HfApi, constants, get_session, get_token, hf_hub_url, hf_raise_for_status
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from caldrix.models.landing import CHUNK_BYTES, Report, digest_of
from caldrix.protocol.errors import Refused

TIMEOUT_S: Final = 15.0
TRIES: Final = 5
"""Breaks in a row without one byte more before a download gives up."""
PAUSE_S: Final = 1.0
POLL_S: Final = 0.1
UNSATISFIABLE: Final = 416
"""The status of a request for bytes that the file does not have: what is there belongs to another file."""


class HubUnreachable(Refused):
    """No answer from the hub, rather than a bad one. `reason` is a clause for another sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__("model_not_found", f"{reason}: try again when there is a connection")
        self.reason = reason


@dataclass(frozen=True)
class HubFile:
    """A file in a repository at one revision. Its size in bytes and SHA-256 are None where the hub does not say."""

    repo: str
    revision: str
    name: str
    size: int | None
    sha256: str | None


def list_files(repo: str) -> list[HubFile]:
    """The files of a repository's main branch.

    Raises HubUnreachable, and Refused("model_not_found") where there is no such repository or it is not for this user.
    """
    try:
        info = HfApi().model_info(repo, files_metadata=True, timeout=TIMEOUT_S)
    except (HfHubHTTPError, HFValidationError, OfflineModeIsEnabled, httpx2.HTTPError) as error:
        raise refusal(repo, error) from error
    revision = info.sha or "main"
    return [
        HubFile(repo, revision, file.rfilename, file.size, file.lfs.sha256 if file.lfs else None)
        for file in info.siblings or []
    ]


def refusal(repo: str, error: Exception) -> Refused:
    """What went wrong with the hub, as a sentence. Pure."""
    if isinstance(error, OfflineModeIsEnabled):
        return HubUnreachable("HF_HUB_OFFLINE forbids asking the hub")
    if isinstance(error, GatedRepoError):
        return _not_found(f"{repo} is gated: accept its terms on its page, then set HF_TOKEN to a token of yours")
    if isinstance(error, RepositoryNotFoundError):
        return _not_found(f"the hub has no repository {repo}, or it is private: check its name, or set HF_TOKEN")
    if isinstance(error, HfHubHTTPError) and error.response.status_code < 500:
        return _not_found(
            f"the hub refused {repo} with status {error.response.status_code}: check HF_TOKEN and its name"
        )
    if isinstance(error, HfHubHTTPError):
        return HubUnreachable(f"the hub at {constants.ENDPOINT} answered with status {error.response.status_code}")
    if isinstance(error, HFValidationError):
        return _not_found(f"{repo} is no name of a repository")
    return HubUnreachable(f"the hub at {constants.ENDPOINT} cannot be reached ({error or type(error).__name__})")


def _not_found(sentence: str) -> Refused:
    return Refused("model_not_found", sentence)


def fetch(file: HubFile, part: Path, report: Report) -> str:
    """Download a file into `part`, going on where an earlier try stopped; gives its SHA-256.

    What has come stays in `part` however this ends. Raises Refused("model_not_found") when the connection stays
    broken, and what `report` raises.
    """
    part.touch()
    with part.open("r+b") as out:
        stream = _Stream(file, out, report)
        failures = 0
        while not stream.complete:
            before = stream.done
            try:
                stream.run()
            except (HfHubHTTPError, OfflineModeIsEnabled, httpx2.HTTPError) as error:
                failures = failures + 1 if stream.done == before else 1
                if failures >= TRIES or not _passing(error):
                    raise _broken(file, stream.done, error) from error
                _pause(lambda: report(stream.done, file.size or 0))
    return stream.digest


class _Stream:
    """One file on its way: how much is there, and its hash so far."""

    def __init__(self, file: HubFile, out: BinaryIO, report: Report) -> None:
        self._file = file
        self._out = out
        self._report = report
        here = out.seek(0, 2)
        out.seek(0)
        self._digest = digest_of(out, lambda _: report(here, file.size or 0))
        self.done = here
        self.complete = self.done == file.size
        if file.size is not None and self.done > file.size:
            self._restart()

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def run(self) -> None:
        """Ask for what is missing and take it as far as it comes."""
        url = hf_hub_url(self._file.repo, self._file.name, revision=self._file.revision)
        headers = {"Accept-Encoding": "identity"}
        if token := get_token():
            headers["Authorization"] = f"Bearer {token}"  # not sent on to another host that serves the file
        if self.done:
            headers["Range"] = f"bytes={self.done}-"
        with get_session().stream("GET", url, headers=headers, follow_redirects=True, timeout=TIMEOUT_S) as response:
            if response.status_code == UNSATISFIABLE and self.done:
                self._restart()
                return
            hf_raise_for_status(response)
            if self.done and not response.headers.get("Content-Range", "").startswith(f"bytes {self.done}-"):
                self._restart()  # the server sends the whole file
            for chunk in response.iter_bytes(CHUNK_BYTES // 4):
                self._out.write(chunk)
                self._digest.update(chunk)
                self.done += len(chunk)
                self._report(self.done, self._file.size or 0)
        self.complete = True

    def _restart(self) -> None:
        self._out.seek(0)
        self._out.truncate()
        self._digest = hashlib.sha256()
        self.done = 0


def _passing(error: Exception) -> bool:
    """Whether another try may help: a broken connection, a server that is busy."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in (408, 429) or error.response.status_code >= 500
    return isinstance(error, httpx2.TransportError)


def _broken(file: HubFile, done: int, error: Exception) -> Refused:
    if not _passing(error):
        return refusal(file.repo, error)
    of = f" of {file.size}" if file.size else ""
    return Refused(
        "model_not_found",
        f"the download of {file.name} stopped after {done}{of} bytes ({error or type(error).__name__}); what came is "
        "kept: try again to go on",
        {"done_bytes": done, "size_bytes": file.size},
    )


def _pause(still: Callable[[], None]) -> None:
    """Wait before another try; `still` may end it."""
    end = time.monotonic() + PAUSE_S
    while time.monotonic() < end:
        still()
        time.sleep(POLL_S)
