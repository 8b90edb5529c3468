"""A whole sitting: the real `aerix`, server and pool with a scripted model; and a trial that cannot run."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.tasks import aerix as aerix_agent
from benchmarks.tasks.agent import Conditions
from benchmarks.tasks.command import run
from benchmarks.tasks.errors import TrialFailed
from benchmarks.tasks.place import Place, environment, held, lay
from benchmarks.tasks.record import Run
from benchmarks.tasks.sitting import WARM_UP, sit
from benchmarks.tasks.task import Task, tasks

ROOT = Path(__file__).parents[2]
TOY = (sys.executable, "-m", "tests.doubles.toy_caldrix")
BOUND_S = 60.0
(TASK,) = tasks(["change-config"])


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'cli'}")
    path = Path(tempfile.mkdtemp(prefix="ax", dir="/tmp"))  # short: a socket path has a limit
    yield path
    shutil.rmtree(path, ignore_errors=True)


def conditions(script: Path, **settings: str) -> Conditions:
    return Conditions(
        model=script,
        window=100_000,
        max_new_tokens=1024,
        temperature=0.0,
        max_turns=5,
        limit_s=BOUND_S,
        route="answer",
        settings=settings,
    )


def edit(path: str) -> str:
    given = {"path": path, "old": '"timeout_minutes": 30', "new": '"timeout_minutes": 45'}
    return json.dumps({"thought": "change it", "calls": [{"tool": "edit", "input": given}]})


def final(text: str) -> str:
    return json.dumps({"thought": "done", "final": text})


async def sitting(root: Path, replies: list[str], seeds: tuple[int, ...], **settings: str) -> list[Run]:
    script = root / "script.json"
    script.write_text(json.dumps({"replies": replies}))
    with held(root / "trial") as place:
        async with aerix_agent.aerix(place, conditions(script, **settings), TOY) as agent:
            return [run async for run in sit(agent, place, [TASK], seeds, "scripted", root / "kept")]


def test_a_sitting_tells_solved_from_unsolved(root: Path) -> None:
    replies = [
        final("Hello."),
        edit("config/no-such.json"),
        edit("config/production.json"),
        final("It is 45 now."),
        final("It is 45 already."),
        edit("config/staging.json"),
        edit("config/production.json"),
        final("Changed both."),
    ]
    solved, idle, damaged = asyncio.run(sitting(root, replies, (1, 2, 3)))
    assert solved.solved and solved.why == "" and solved.outcome == "final" and solved.answer == "It is 45 now."
    assert solved.files == ("config/production.json",)
    assert (solved.figures.turns, solved.figures.calls, solved.figures.errors, solved.figures.reasks) == (3, 2, 1, 0)
    assert solved.figures.read > solved.figures.written > 0 and solved.seconds > 0
    assert [line for line in solved.trace if ", edit c1 error: error: " in line], solved.trace
    assert (idle.solved, idle.why, idle.files) == (False, "nothing was changed", ())
    assert (damaged.solved, damaged.why) == (False, "config/staging.json was changed, which nobody asked for")
    assert [one.seed for one in (solved, idle, damaged)] == [1, 2, 3]
    kept = root / "kept" / "scripted" / "change-config-1"
    assert '"timeout_minutes": 45' in (kept / "repo/config/production.json").read_text()
    assert len(list((kept / "home/data/aerix/sessions").glob("*/*.jsonl"))) == 1
    assert sorted(path.name for path in (root / "trial").iterdir()) == ["lock"]


def test_settings_reach_the_agent(root: Path) -> None:
    loop = [final("Hello."), edit("config/production.json")]
    (run,) = asyncio.run(sitting(root, loop, (1,), **{"context.max_new_tokens": "64"}))
    assert run.outcome == "failed" and run.figures.turns == 0 and run.figures.reasks == 3


def test_a_setting_that_is_none_stops_the_sitting(root: Path) -> None:
    with pytest.raises(TrialFailed, match=r"aerix cannot run: (?s:.*)sampling\.temperature"):
        asyncio.run(sitting(root, [final("Hello.")], (1,), **{"sampling.temperature": "hot"}))


def test_a_first_request_without_a_turn_stops_the_sitting(root: Path) -> None:
    with pytest.raises(TrialFailed, match="gave no turn: failed"):
        asyncio.run(sitting(root, ["x" * 4000], (1,), **{"context.max_new_tokens": "16"}))


def test_one_trial_at_a_time_is_in_a_place(tmp_path: Path) -> None:
    with (
        held(tmp_path / "trial"),
        pytest.raises(TrialFailed, match="another trial runs in"),
        held(tmp_path / "trial"),
    ):
        pass


def commit(place: Place, task: Task) -> str:
    repo = lay(place, task)
    head = (repo / ".git" / "refs" / "heads" / "main").read_text()
    assert (repo / "README.md").is_file() and not list((place.home / "data").iterdir())
    return head


def test_a_repository_is_laid_alike_every_time(tmp_path: Path) -> None:
    with held(tmp_path / "trial") as place:
        first = commit(place, TASK)
        (place.repo(TASK) / "junk").mkdir(mode=0o000)
        assert commit(place, TASK) == first
        commit(place, WARM_UP)


def test_what_would_steer_an_agent_does_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AERIX_MAIN_MODEL", "AIDER_MODEL", "GIT_DIR", "OPENAI_API_BASE", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, "x")
    env = environment(Place(tmp_path))
    assert "x" not in env.values()
    assert env["HOME"] == str(tmp_path / "home") and env["PATH"].startswith(str(Path(sys.executable).parent))


@pytest.mark.parametrize("ignores", [True, False])
def test_a_command_ends_at_its_limit(ignores: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.tasks.command.GRACE_S", 0.3 if ignores else BOUND_S)
    code = (
        "import os, signal, threading\n"
        f"signal.signal(signal.SIGINT, {'signal.SIG_IGN' if ignores else 'lambda *_: os._exit(7)'})\n"
        "print('begun', flush=True)\n"
        "while True: threading.Event().wait(1)\n"
    )
    ended = asyncio.run(run([sys.executable, "-c", code], tmp_path, os.environ, 2.0))
    assert not ended.in_time and ended.seconds >= 2.0
    # On a slow machine the limit may come before the program has set its handler.
    assert ended.code in ((-9,) if ignores else (7, -2, 1)) or ended.stdout == ""


def test_the_end_of_a_flood_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.tasks.command.OUTPUT_BYTES", 1000)
    code = "import sys; print('x' * 3_000_000 + 'end'); print('told', file=sys.stderr); sys.exit(3)"
    ended = asyncio.run(run([sys.executable, "-c", code], tmp_path, os.environ, BOUND_S))
    assert (ended.code, ended.in_time, ended.stderr) == (3, True, "told\n")
    assert len(ended.stdout) == 1000 and ended.stdout.endswith("end\n")
