"""Calling git so that neither the user's settings nor the environment change its answer, and nothing runs for ever.

A repository's own settings may name commands. Hooks, file-system monitors, external diffs, text converters and pagers
are never run for us. Clean filters are, as `git status` runs them: without them every file of a large-file store or an
encrypted one would count as changed, and its plain text would be kept.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from aerix_server.config.bounds import GIT_TIMEOUT_S

# These tell where settings are; every other GIT_ variable would change which repository is meant or what git prints.
_KEPT = frozenset(
    {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_CEILING_DIRECTORIES", "GIT_EXEC_PATH"}
)
_SETTINGS = (
    "core.quotePath=false",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.safecrlf=false",
    "core.splitIndex=false",
    "core.pager=cat",
    "color.ui=false",
    "diff.suppressBlankEmpty=false",
    "diff.renameLimit=1000",
    "submodule.recurse=false",
    "advice.addEmbeddedRepo=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
OUTPUT_BYTES = 256 * 1024 * 1024


class GitFailed(Exception):
    """git refused. The text is a part of a sentence for the user; `status` is what git ended with."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class GitMissing(GitFailed):
    """There is no git to call."""


class GitLate(GitFailed):
    """git did not end within its bound."""


def git(
    arguments: Sequence[str],
    folder: Path,
    *,
    extra: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout_s: float = GIT_TIMEOUT_S,
    output_bytes: int = OUTPUT_BYTES,
    accept: frozenset[int] = frozenset({0}),
) -> bytes:
    """What `git <arguments>` prints in `folder`, at most `output_bytes` of it. Blocking.

    Raises GitFailed: GitMissing, GitLate, or git's own refusal.
    """
    switches = [word for setting in _SETTINGS for word in ("-c", setting)]
    command = ["git", "--literal-pathspecs", "--no-pager", *switches, *arguments]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            child = subprocess.Popen(
                command,
                cwd=folder,
                env=_environment(extra or {}),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise GitMissing(f"git cannot be started: {error.strerror}") from error
        status = _wait(child, stdin, timeout_s, arguments[0])
        if status not in accept:
            errors.seek(0)
            raise GitFailed(_first_line(errors.read(4096)) or f"git {arguments[0]} ended with status {status}", status)
        output.seek(0)
        return output.read(output_bytes)


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _KEPT}
    quiet = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
    # Git before 2.44 fetches what a partial clone lacks, by a command that the repository names.
    quiet["GIT_ALLOW_PROTOCOL"] = "none"
    return {**kept, **quiet, **extra}


def _wait(child: subprocess.Popen[bytes], stdin: bytes, timeout_s: float, name: str) -> int:
    try:
        child.communicate(stdin, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise GitLate(f"git {name} did not end within {timeout_s:g} s") from None
    return child.returncode


def _first_line(errors: bytes) -> str:
    lines = [
        line for line in errors.decode("utf-8", "replace").splitlines() if not line.startswith(("warning:", "hint:"))
    ]
    return lines[0].strip() if lines else ""
