"""What is found under a working directory for the paths of a turn."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from aerix_server.config.bounds import KNOWN_PATHS, NAMES_BESIDE
from aerix_server.runtime.known_paths import TooManyPaths, known_paths
from aerix_server.tools.base import ToolError


def never() -> bool:
    return False


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "other").mkdir()
    return tmp_path / "work"


@pytest.mark.parametrize("in_git", [True, False])
def test_files_directories_and_what_git_does_not_list(work: Path, in_git: bool) -> None:
    make(work, "a.py", "src/b.py", "src/deep/c.py", "build/out.o", "src/b.pyc", "line\nfeed", ".gitignore")
    (work / ".gitignore").write_text("build/\n*.pyc\n")
    (work / "empty").mkdir()
    (work / "linked").symlink_to(work.parent / "other")
    (work / "link.py").symlink_to("a.py")
    (work / "broken").symlink_to("nowhere")
    os.mkfifo(work / "pipe")
    (work / os.fsdecode(b"byte\xff")).write_text("x")
    if in_git:
        subprocess.run(["git", "init", "-q", str(work)], check=True)
    found = known_paths(work, never)
    files = {"a.py", "src/b.py", "src/deep/c.py", "src/b.pyc", "line\\nfeed", ".gitignore", "link.py", "byte\\xff"}
    hidden = {"empty", "linked"} | ({"build", ".git"} if in_git else set())
    assert set(found.files) == files | (set() if in_git else {"build/out.o"})
    assert set(found.directories) == {"src", "src/deep"} | (set() if in_git else {"build"})
    assert set(found.hidden) == hidden
    assert set(found.beside) == {"other", ".."} and set(found.top) == set(os.listdir("/"))


def test_a_file_that_is_gone_is_not_there_though_git_lists_it(work: Path) -> None:
    make(work, "a.py", "gone/b.py")
    subprocess.run("git init -q . && git add -A && rm -r gone", shell=True, cwd=work, check=True)
    found = known_paths(work, never)
    assert (found.files, found.directories) == (("a.py",), ())


def test_more_than_the_bound_is_refused_and_so_is_a_late_end(work: Path) -> None:
    make(work, *(f"{number}.txt" for number in range(KNOWN_PATHS)))
    assert len(known_paths(work, never).files) == KNOWN_PATHS
    make(work, "d/one.txt")
    with pytest.raises(TooManyPaths, match=str(KNOWN_PATHS)):
        known_paths(work, never)
    with pytest.raises(ToolError):
        known_paths(work, lambda: True)


def test_ignored_files_count_too(work: Path) -> None:
    make(work, ".gitignore", *(f"{number}.o" for number in range(KNOWN_PATHS)))
    (work / ".gitignore").write_text("*.o\n")
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    with pytest.raises(TooManyPaths):
        known_paths(work, never)


def test_a_crowded_directory_above_is_not_listed(work: Path) -> None:
    make(work.parent, *(f"{number}.txt" for number in range(NAMES_BESIDE)))
    assert known_paths(work, never).beside == ()
