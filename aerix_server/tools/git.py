"""The few git calls of the tools: bounded, and blind to the variables that a git hook's environment carries."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from aerix_server.config.bounds import GIT_TIMEOUT_S
from aerix_server.tools.base import ToolError

# `git rev-parse --local-env-vars`: each would point git at another repository than the one in the working directory.
_LOCAL_VARIABLES = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_CONFIG",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_PARAMETERS",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_INTERNAL_SUPER_PREFIX",
        "GIT_NAMESPACE",
        "GIT_NO_REPLACE_OBJECTS",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)


class GitFailed(Exception):
    """git ended with an error; the text is its own."""


class GitMissing(Exception):
    """There is no git to call."""


def git_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _LOCAL_VARIABLES}
    return {**kept, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def git(directory: Path, *arguments: str) -> bytes:
    """What git prints when it is run in `directory`. Raises GitFailed, GitMissing, and ToolError when late."""
    try:
        # A repository's own fsmonitor is a program of its choice: listing files must not run it.
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", *arguments],
            cwd=directory,
            env=git_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"git did not answer within {GIT_TIMEOUT_S:.0f} s") from error
    except FileNotFoundError as error:
        raise GitMissing from error
    except OSError as error:
        raise GitFailed(str(error)) from error
    if done.returncode != 0:
        raise GitFailed(done.stderr.decode("utf-8", "replace").strip())
    return done.stdout
