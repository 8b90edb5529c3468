"""The request's diff through whole sessions: the real runtime and tools over a scripted pool, and a git that hangs."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from aerix_server.config.settings import Settings
from aerix_server.pool.start import BoundPool
from aerix_server.protocol import messages as m
from aerix_server.runtime.ports import RequestPorts, RequestResult, RequestSpec, RootState
from aerix_server.runtime.request import run_request
from aerix_server.session.folders import checkpoints_folder
from aerix_server.session.log_reader import read_log
from aerix_server.session.session import LiveSession
from aerix_server.session.sessions import Sessions
from aerix_server.session.shadow import Shadow
from aerix_server.session.snapshot import NO_REPOSITORY
from tests.runtime.scripted_pool import ScriptedPool
from tests.session.repository_kit import LINES, Work, changed_lines, git_in_between, impatient
from tests.session.test_repository_states import filled, settings

__all__ = ["settings"]  # The fixture serves here too.

LIMIT_S = 60


class Scripted:
    """Sessions whose model says what `turns` hold."""

    def __init__(self) -> None:
        self.pool = ScriptedPool([])
        self.sessions = Sessions({}, bind=self.bind, run=self.run)
        self.running = asyncio.Event()

    async def bind(self, settings: Settings, report: Callable[[Any], None]) -> BoundPool:
        member = await self.pool.member("main")
        return BoundPool(self.pool, member, member, "/run/pool.sock")

    async def run(self, spec: RequestSpec, ports: RequestPorts, history: RootState | None) -> RequestResult:
        self.running.set()
        return await run_request(spec, ports, history)

    async def new(self, cwd: Path) -> LiveSession:
        return await self.sessions.new(m.SessionNewParams(cwd=str(cwd)))

    def ask(self, live: LiveSession, *calls: tuple[str, dict[str, Any]]) -> str:
        turns = [{"thought": "t", "calls": [{"tool": tool, "input": given} for tool, given in calls]}] if calls else []
        self.pool.script = [json.dumps(turn) for turn in (*turns, {"thought": "t", "final": "done"})]
        return live.start_request(m.RequestStartParams(session=live.id, prompt="go", route="answer"))

    async def do(self, live: LiveSession, *calls: tuple[str, dict[str, Any]]) -> m.Outcome:
        async with asyncio.timeout(LIMIT_S):
            return await live.wait(self.ask(live, *calls))

    async def diff(self, live: LiveSession, **more: Any) -> m.DiffResult:
        return await self.sessions.diff(m.DiffGetParams(session=live.id, **more))


@pytest.fixture
async def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scripted]:
    for name in ("DATA", "CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    made = Scripted()
    yield made
    await made.sessions.close("the test ends")


@pytest.fixture
def plain(tmp_path: Path) -> Work:
    made = Work(tmp_path / "plain", tmp_path / "unused")
    made.write("a.txt", LINES)
    return made


@pytest.fixture
def repo(tmp_path: Path) -> Work:
    made = Work(tmp_path / "work", tmp_path / "unused")
    filled(made)
    return made


EDIT = ("edit", {"path": "a.txt", "old": "line 5", "new": "AGENT"})
WRITE = ("write", {"path": "new/n.txt", "content": "new\n"})
COMMAND = ("bash", {"command": "echo x > by_command"})


async def test_outside_a_repository(scripted: Scripted, plain: Work) -> None:
    live = await scripted.new(plain.top)
    outcome = await scripted.do(live, EDIT, WRITE, COMMAND)
    assert (outcome.outcome, outcome.files_touched) == ("final", ["a.txt", "new/n.txt"])
    diff = await scripted.diff(live)
    assert [(file.path, file.status) for file in diff.files] == [("a.txt", "modified"), ("new/n.txt", "added")]
    assert changed_lines(diff) == ["-line 5", "+AGENT", "+new"]
    assert (diff.untracked, diff.notice) == ([], NO_REPOSITORY)
    assert read_log(live.files.log).events[-1]["diff"] == {"added": 2, "removed": 1, "files": 2}
    await scripted.do(live, ("edit", {"path": "a.txt", "old": "AGENT", "new": "AGENT 2"}))
    assert changed_lines(await scripted.diff(live)) == ["-AGENT", "+AGENT 2"]
    assert await scripted.diff(live, request="r1") == diff
    assert changed_lines(await scripted.diff(live, since="session")) == ["-line 5", "+AGENT 2", "+new"]
    kept = checkpoints_folder(os.environ) / live.project.key / "shadow" / live.id
    assert sorted(path.name for path in kept.iterdir()) == ["r1", "r2"]


async def test_ignored_and_outside_files_of_a_repository(scripted: Scripted, repo: Work, tmp_path: Path) -> None:
    repo.write(".gitignore", "*.log\n")
    repo.commit()
    repo.write("x.log", LINES)
    outside = repo.write(tmp_path / "o.txt", LINES)
    live = await scripted.new(repo.top)
    change = {"old": "line 5", "new": "AGENT"}
    await scripted.do(live, EDIT, *(("edit", {"path": path, **change}) for path in ("x.log", str(outside))), COMMAND)
    diff = await scripted.diff(live)
    assert [file.path for file in diff.files] == ["a.txt", "x.log", str(outside)]
    assert changed_lines(diff) == ["-line 5", "+AGENT"] * 3
    assert diff.untracked == sorted([str(outside), "by_command", "x.log"])


async def test_what_failed_or_was_refused_is_no_change(scripted: Scripted, plain: Work) -> None:
    plain.write("read-only", "x\n").chmod(0o444)
    live = await scripted.new(plain.top)
    outcome = await scripted.do(
        live,
        ("edit", {"path": "a.txt", "old": "nowhere", "new": "x"}),
        ("write", {"path": "a.txt/below", "content": "x"}),
        ("write", {"path": ".", "content": "x"}),
    )
    assert outcome.outcome == "final"
    diff = await scripted.diff(live)
    assert (diff.files, diff.untracked) == ([], [])


async def test_the_diff_of_a_running_request(scripted: Scripted, plain: Work, tmp_path: Path) -> None:
    """Its copies are read from disk, as another process does."""
    os.mkfifo(tmp_path / "gate")
    live = await scripted.new(plain.top)
    request = scripted.ask(live, EDIT, ("bash", {"command": f"touch {tmp_path}/reached; cat {tmp_path}/gate"}))
    await until(lambda: (tmp_path / "reached").exists())
    diff = await scripted.diff(live, request=request)
    assert changed_lines(diff) == ["-line 5", "+AGENT"]
    assert diff.notice and "not come to its end" in diff.notice
    await asyncio.to_thread((tmp_path / "gate").write_text, "")
    async with asyncio.timeout(LIMIT_S):
        await live.wait(request)


async def until(ready: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not ready():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("when", ["from the start", "at the end"])
async def test_a_git_that_hangs_ends_in_a_notice(
    scripted: Scripted, repo: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    hang = f"[ -e {tmp_path}/hang ] && {{ sleep 600 & wait; }}\n"
    git_in_between(tmp_path, hang + 'exec $REAL "$@"', monkeypatch)
    live = await scripted.new(repo.top)
    impatient(monkeypatch, lambda _command: (tmp_path / "hang").exists())
    if when == "from the start":
        (tmp_path / "hang").touch()
    outcome = await scripted.do(live, EDIT, ("bash", {"command": f"touch {tmp_path}/hang"}))
    assert (outcome.outcome, outcome.files_touched) == ("final", ["a.txt"])
    diff = await scripted.diff(live)
    assert diff.notice and "did not end within 0.2 s" in diff.notice
    assert ([file.path for file in diff.files], diff.untracked) == ([], ["a.txt"])
    assert (repo.top / "a.txt").read_text() == LINES.replace("line 5", "AGENT")


@pytest.mark.parametrize("asked", ["snapshot", "diff", "copy"])
async def test_the_loop_is_not_held_up(
    scripted: Scripted, repo: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """What only the loop can open is waited for: a loop that were held up would never open it."""
    waits, go = tmp_path / "waits", tmp_path / "go"
    if asked == "copy":
        hold_the_copy(monkeypatch, waits, go)
    else:
        # By these words it is the snapshot's or the diff's git, and no tool's.
        moment = f"[ ! -e {go} ]" + ("" if asked == "snapshot" else f" && [ -e {tmp_path}/did_it ]")
        wait = f"touch {waits}; while [ ! -e {go} ]; do sleep 0.02; done"
        held = f'case "$*" in *--git-path*) {moment} && {{ {wait}; }};; esac\n'
        git_in_between(tmp_path, held + 'exec $REAL "$@"', monkeypatch)
        go.touch()
    live = await scripted.new(repo.top)
    go.unlink(missing_ok=True)
    request = scripted.ask(live, EDIT, ("bash", {"command": f"touch {tmp_path}/did_it"}))
    await until(waits.exists)
    go.touch()
    async with asyncio.timeout(LIMIT_S):
        assert (await live.wait(request)).outcome == "final"
    diff = await scripted.diff(live)
    assert (changed_lines(diff), diff.notice) == (["-line 5", "+AGENT"], None)


def hold_the_copy(monkeypatch: pytest.MonkeyPatch, waits: Path, go: Path) -> None:
    keep = Shadow.keep

    def slow(self: Shadow, path: Path) -> None:
        waits.touch()
        opened = threading.Event()
        while not go.exists():
            opened.wait(0.01)
        keep(self, path)

    monkeypatch.setattr(Shadow, "keep", slow)
