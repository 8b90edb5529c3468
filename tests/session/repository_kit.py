"""A real repository, and an agent that writes files as the tools do, for tests of the request's diff."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from aerix_server.config.settings import Settings
from aerix_server.protocol.events import Snapshot
from aerix_server.protocol.messages import DiffResult
from aerix_server.session.diff import diff_since
from aerix_server.session.shadow import Shadow, shadow_folder
from aerix_server.session.snapshot import Taken, take_snapshot
from aerix_server.tools import git as git_module
from aerix_server.tools.base import ToolContext, Views
from aerix_server.tools.saving import find_target, save

LINES = "".join(f"line {number}\n" for number in range(1, 11))


def run_git(folder: Path, *arguments: str, ok: bool = True) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0 or not ok, done.stderr
    return done.stdout.decode("utf-8", "surrogateescape")


class Work:
    """A folder that a request works in: `snapshot`, then writes, then `diff`. `top` may be no repository."""

    def __init__(self, top: Path, private: Path) -> None:
        self.top = top
        self.cwd = top
        self.store = private / "objects"
        self.shadow = Shadow(shadow_folder(self.store, "s", "r1"))
        top.mkdir(parents=True, exist_ok=True)

    def git(self, *arguments: str, ok: bool = True) -> str:
        return run_git(self.top, *arguments, ok=ok)

    def write(self, name: str | Path, data: str | bytes) -> Path:
        """As the user does, or a command."""
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def agent_writes(self, name: str | Path, data: str | bytes) -> str:
        """Through the tools' own way to disk; gives the name they tell."""
        ctx = ToolContext(
            cwd=self.cwd,
            settings=Settings(),
            cancelled=asyncio.Event(),
            views=Views(),
            spool_dir=self.store,
            plan=cast(Any, None),
            context=cast(Any, None),
            jobs=cast(Any, None),
            cache={},
            before_write=self.shadow.keep,
        )
        target = find_target(self.cwd / name, ctx)
        save(target, data.encode() if isinstance(data, str) else data, ctx)
        return target.changed_name(ctx)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", "c", "--allow-empty")

    def take(self) -> Taken:
        return take_snapshot(self.cwd, self.store)

    def diff(self, snapshot: Snapshot, *touched: str) -> DiffResult:
        return diff_since(self.cwd, self.store, snapshot, touched, self.shadow.kept())


def git_in_between(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`script` is run for every git that is called from now on; `$REAL` in it is the true one."""
    real = shutil.which("git")
    assert real
    wrapper = folder / "bin" / "git"
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text(f"#!/bin/sh\nREAL={real}\n{script}\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")


def impatient(monkeypatch: pytest.MonkeyPatch, hangs: Callable[[str], bool]) -> None:
    """A git command that `hangs` is waited for no longer than 0.2 s, the others as long as ever."""
    wait = git_module._wait

    def shorter(child: subprocess.Popen[bytes], stdin: bytes, timeout_s: float, name: str) -> int:
        return wait(child, stdin, 0.2 if hangs(name) else timeout_s, name)

    monkeypatch.setattr(git_module, "_wait", shorter)


def tree_of(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file below a folder: mode and bytes."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path: (path.stat().st_mode, path.read_bytes()) for path in files}


def changed_lines(diff: DiffResult) -> list[str]:
    return [line for line in diff.unified.split("\n") if line.startswith(("+", "-")) and line[:3] not in ("+++", "---")]
