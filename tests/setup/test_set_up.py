"""`./run` and the scripts behind it: what they refuse, keep, wait for and say. Nothing is installed here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import engine_wheel
import pytest
import set_up
from steps import SetUpError, locked, run_step

ROOT = Path(__file__).parents[2]
STAMP = "checkout: /c\nenvironment: /e\nthe rest\n"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder for PATH that holds what `run` itself needs, and no Python, compiler or git."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("bash", "env", "readlink", "cksum", "uname", "grep"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder


def run(venv: Path, *words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "AERIX_VENV": str(venv), "PATH": path or os.environ["PATH"]}
    return subprocess.run([ROOT / "run", *words], env=env, capture_output=True, text=True, timeout=60, check=False)


def test_run_without_a_command_is_wrong_usage(tmp_path: Path) -> None:
    done = run(tmp_path / "venv")
    assert (done.returncode, done.stdout) == (64, "")
    assert "usage: ./run CMD" in done.stderr


def test_run_names_a_missing_python(tmp_path: Path, tools: Path) -> None:
    done = run(tmp_path / "venv", "true", path=str(tools))
    assert (done.returncode, done.stdout) == (1, "")
    assert "Python 3.11 or newer is needed" in done.stderr


def test_run_names_a_missing_git(tmp_path: Path, tools: Path) -> None:
    (tools / "python3").symlink_to(sys.executable)
    done = run(tmp_path / "venv", "true", path=str(tools))
    assert (done.returncode, done.stdout) == (1, "")
    assert "git is needed" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_run_leaves_a_folder_alone_that_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    done = run(tmp_path, "true")
    assert (done.returncode, done.stdout) == (1, "")
    assert "did not make" in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    "kept", [None, "", "checkout: /other\nenvironment: /e\n", "checkout: /c\nenvironment: /other\n"]
)
def test_an_interrupted_or_moved_environment_is_not_kept(tmp_path: Path, kept: str | None) -> None:
    if kept is not None:
        (tmp_path / set_up.STAMP).write_text(kept)
    assert not set_up._can_be_kept(tmp_path, Path(sys.executable), STAMP)


def test_a_whole_environment_at_its_place_is_kept(tmp_path: Path) -> None:
    (tmp_path / set_up.STAMP).write_text("checkout: /c\nenvironment: /e\nanother rest\n")
    assert set_up._can_be_kept(tmp_path, Path(sys.executable), STAMP)


def test_an_environment_whose_python_is_gone_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / set_up.STAMP).write_text(STAMP)
    assert not set_up._can_be_kept(tmp_path, tmp_path / "no-python", STAMP)


def test_clearing_follows_no_link_and_keeps_the_lock(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "venv"
    (outside / "deep").mkdir(parents=True)
    (folder / "bin").mkdir(parents=True)
    (folder / "link").symlink_to(outside)
    (folder / set_up.LOCK).touch()
    set_up._clear(folder)
    assert [entry.name for entry in folder.iterdir()] == [set_up.LOCK]
    assert (outside / "deep").is_dir()


def test_a_failed_step_shows_the_end_of_its_log(tmp_path: Path) -> None:
    code = "print('\\n'.join(f'line {n}' for n in range(100))); raise SystemExit(7)"
    with pytest.raises(SetUpError, match=r"trying failed \(exit 7\)") as raised:
        run_step("trying", [sys.executable, "-c", code], tmp_path / "log", os.environ)
    assert "line 99" in str(raised.value)
    assert "line 50" not in str(raised.value)


def test_a_lock_outlives_a_killed_holder_while_its_command_runs(tmp_path: Path) -> None:
    holder = (
        "import os, sys, pathlib; from steps import locked, run_step; folder = pathlib.Path(sys.argv[1])\n"
        "with locked(folder / 'lock', 'waiting'):\n"
        "    run_step('holding', ['cat', 'fifo'], folder / 'log', os.environ)\n"
    )
    os.mkfifo(tmp_path / "fifo")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    process = subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path)], cwd=tmp_path, env=env, stderr=subprocess.DEVNULL
    )
    # Opening the pipe to write waits until the command reads it.
    with (tmp_path / "fifo").open("wb"):
        process.kill()
        process.wait(30)
        assert not free(tmp_path / "lock")
    with locked(tmp_path / "lock", "waiting for the command to end"):
        pass


def free(lock: Path) -> bool:
    code = (
        "import fcntl, sys\n"
        "try: fcntl.flock(open(sys.argv[1], 'ab'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError: sys.exit(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(lock)], timeout=30, check=False)
    assert done.returncode in (0, 3)
    return done.returncode == 0


@pytest.fixture
def plain_env(tmp_path: Path) -> Iterator[dict[str, str]]:
    yield {"XDG_CACHE_HOME": str(tmp_path), "PATH": os.environ["PATH"]}


def test_the_users_flags_are_taken_exactly_and_change_the_build(plain_env: dict[str, str]) -> None:
    own = engine_wheel.chosen_build("1.0", plain_env)
    users = engine_wheel.chosen_build("1.0", {**plain_env, "CMAKE_ARGS": "-DGGML_CUDA=ON"})
    assert users.flags == "-DGGML_CUDA=ON"
    assert len({own.name, users.name, engine_wheel.chosen_build("1.1", plain_env).name}) == 3
    assert own == engine_wheel.chosen_build("1.0", plain_env)


def test_a_kept_wheel_is_used_without_a_compiler(tmp_path: Path, plain_env: dict[str, str]) -> None:
    env = {**plain_env, "CC": "no-such-compiler"}
    build = engine_wheel.chosen_build("1.0", env)
    wheel = tmp_path / "aerix" / "wheels" / build.name / "engine.whl"
    wheel.parent.mkdir(parents=True)
    wheel.touch()
    assert engine_wheel.build_or_find(build, Path(sys.executable), env) == wheel


@pytest.mark.parametrize(
    ("compilers", "said"),
    [
        ({"CC": "no-such-compiler"}, "CC=no-such-compiler names no program"),
        ({"CC": "true", "CXX": "false"}, r"false cannot compile a small C\+\+ program"),
    ],
)
def test_a_missing_or_broken_compiler_is_named(plain_env: dict[str, str], compilers: dict[str, str], said: str) -> None:
    env = {**plain_env, **compilers}
    with pytest.raises(SetUpError, match=said):
        engine_wheel.build_or_find(engine_wheel.Build("1.0", "", "one"), Path(sys.executable), env)


@pytest.mark.parametrize(("requirements", "version"), [(["a>=1", "x==2.5"], "2.5"), (["x == 3"], "3")])
def test_the_pinned_version(requirements: list[str], version: str) -> None:
    assert set_up._pinned(requirements, "x") == version


def test_a_missing_pin_is_said() -> None:
    with pytest.raises(SetUpError, match="does not pin x"):
        set_up._pinned(["x>=1"], "x")
