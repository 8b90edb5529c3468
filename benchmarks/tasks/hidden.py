"""Tests run on a copy of an attempt: its own, those no agent sees, and its own again on broken versions of the code."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.tasks.command import Ended, run
from benchmarks.tasks.task import Task

TEST_SECONDS: Final = 60.0
"""Of one run of tests; code that never ends is stopped there."""
_FAILED: Final = re.compile(r"^(?:FAIL|ERROR): (\S+)", re.MULTILINE)
_REASON: Final = re.compile(
    r"^(?!ImportError: Failed to import test module)(\w*(?:Error|Exception|Interrupt|Warning)\b.*)$", re.MULTILINE
)
_REASON_CHARS: Final = 200


async def fault(task: Task, attempt: Path) -> str | None:
    """Which test says that the attempt is wrong, as a sentence; None when none does."""
    with tempfile.TemporaryDirectory(prefix="trial-check-") as folder:
        copy = Path(folder) / "repo"
        # A link may lead out of the attempt: it is copied as what it is.
        shutil.copytree(attempt, copy, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__"))
        if found := _failure("a test of the repository", await _unittest(copy)):
            return found
        if task.mutants and (found := await _unnoticed(task, task.mutants, copy)):
            return found
        if not task.hidden.is_dir():
            return None
        shutil.copytree(task.hidden, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        names = sorted(path.stem for path in task.hidden.glob("hidden_test_*.py"))
        return _failure("a hidden test", await _unittest(copy, *names))


async def _unnoticed(task: Task, path: str, copy: Path) -> str | None:
    """The first broken version that the attempt's tests pass with."""
    right = (copy / path).read_bytes()
    for mutant in sorted((task.folder / "mutants").glob("*.py")):
        (copy / path).write_bytes(mutant.read_bytes())
        if (await _unittest(copy)).code == 0:
            return f"the tests do not notice a broken {path} ({mutant.stem.replace('_', ' ')})"
    (copy / path).write_bytes(right)
    return None


async def _unittest(folder: Path, *names: str) -> Ended:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "AERIX_", "GIT_"))}
    words = [sys.executable, "-B", "-m", "unittest", *names]
    return await run(words, folder, {**kept, "PYTHONIOENCODING": "utf-8"}, TEST_SECONDS)


def _failure(what: str, ended: Ended) -> str | None:
    if ended.code == 0 and ended.in_time:
        return None
    if not ended.in_time:
        return f"{what} did not end within {TEST_SECONDS:.0f} s"
    name = _FAILED.search(ended.stderr)
    reason = _REASON.search(ended.stderr)
    told = reason.group(1)[:_REASON_CHARS] if reason else f"exit code {ended.code}"
    return f"{what} fails: {name.group(1) if name else 'unittest'}: {told}"
