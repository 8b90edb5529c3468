"""Copies kept before a tool first changes a file: the diff where git keeps nothing (no repository, ignored files, files
outside), its bounds, and how it reads back."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerix_server.protocol.events import DiffStat
from aerix_server.session import shadow as shadow_module
from aerix_server.session.diff import stat_of
from aerix_server.session.shadow import Kept, Shadow, earliest, read_shadow
from aerix_server.session.shadow_diff import look
from aerix_server.session.snapshot import NO_REPOSITORY
from tests.session.repository_kit import LINES, Work, changed_lines, run_git, tree_of
from tests.session.test_repository_states import filled, settings

__all__ = ["settings"]  # The fixture serves here too.


@pytest.fixture
def plain(tmp_path: Path) -> Work:
    """A folder that is no repository."""
    made = Work(tmp_path / "plain", tmp_path / "private")
    made.write("a.txt", LINES)
    return made


@pytest.fixture
def repo(tmp_path: Path) -> Work:
    made = Work(tmp_path / "work", tmp_path / "private")
    filled(made)
    made.write(".gitignore", "*.log\nbuild/\n")
    made.commit()
    return made


def test_the_same_format_as_in_a_repository(plain: Work, tmp_path: Path) -> None:
    twin = Work(tmp_path / "twin", tmp_path / "private2")
    twin.git("init", "-q")
    twin.write("a.txt", LINES)
    twin.commit()
    diffs = []
    for work in (plain, twin):
        start = work.take().snapshot
        work.agent_writes("a.txt", LINES.replace("line 5", "AGENT") + "last")
        diffs.append(work.diff(start, "a.txt"))
    assert diffs[0].unified == diffs[1].unified
    assert (diffs[0].files, diffs[0].untracked) == (diffs[1].files, diffs[1].untracked)
    assert (diffs[0].notice, diffs[1].notice) == (NO_REPOSITORY, None)
    assert stat_of(diffs[0]) == DiffStat(added=2, removed=1, files=1)


def test_new_changed_deleted_binary_and_runnable(plain: Work) -> None:
    plain.write("run.sh", "one\n").chmod(0o755)
    plain.write("bin", b"\0\1")
    plain.write("gone", "x\n")
    plain.write("same", "x\n")
    start = plain.take().snapshot
    plain.agent_writes("run.sh", "two\n")
    plain.agent_writes("bin", b"\0\2")
    plain.agent_writes("gone", "y\n")
    plain.agent_writes("same", "y\n")
    plain.agent_writes("same", "x\n")
    plain.agent_writes("deep/er/new", "new\n")
    plain.agent_writes("empty", "")
    (plain.top / "gone").unlink()
    diff = plain.diff(start, "run.sh", "bin", "gone", "same", "deep/er/new", "empty")
    assert {file.path: (file.status, file.added, file.removed, file.binary) for file in diff.files} == {
        "bin": ("modified", 0, 0, True),
        "deep/er/new": ("added", 1, 0, False),
        "empty": ("added", 0, 0, False),
        "gone": ("deleted", 0, 1, False),
        "run.sh": ("modified", 1, 1, False),
    }
    assert diff.untracked == []
    assert (plain.top / "run.sh").stat().st_mode & 0o777 == 0o755


def test_what_it_tells_can_be_applied(plain: Work, tmp_path: Path) -> None:
    shutil.copytree(plain.top, tmp_path / "old")
    start = plain.take().snapshot
    plain.agent_writes("a.txt", LINES.replace("line 2\n", "") + "no end")
    plain.agent_writes("n\nl/日本 x", "new\n")
    (tmp_path / "patch").write_text(plain.diff(start).unified)
    run_git(tmp_path / "old", "apply", str(tmp_path / "patch"))
    shapes = [
        {path.relative_to(folder): data for path, (_, data) in tree_of(folder).items()}
        for folder in (plain.top, tmp_path / "old")
    ]
    assert shapes[0] == shapes[1]


def test_what_the_user_did_before_the_first_write_is_not_shown(plain: Work) -> None:
    start = plain.take().snapshot
    plain.write("a.txt", LINES + "the user's\n")
    plain.agent_writes("a.txt", LINES + "the user's\nthe agent's\n")
    plain.agent_writes("a.txt", LINES + "the user's\nthe agent's\nmore\n")
    assert changed_lines(plain.diff(start)) == ["+the agent's", "+more"]


def test_what_a_command_changed_is_not_seen_and_that_is_said(plain: Work) -> None:
    start = plain.take().snapshot
    plain.write("a.txt", "by a command\n")
    diff = plain.diff(start)
    assert (diff.files, diff.untracked) == ([], [])
    assert diff.notice == "outside a git repository only files changed by edit and write are compared"


def test_through_links(plain: Work) -> None:
    (plain.top / "link").symlink_to("a.txt")
    (plain.top / "folder").symlink_to(".")
    start = plain.take().snapshot
    touched = [plain.agent_writes("link", LINES + "1\n"), plain.agent_writes("folder/a.txt", LINES + "1\n2\n")]
    diff = plain.diff(start, *touched)
    assert ([file.path for file in diff.files], diff.untracked) == (["a.txt"], [])
    assert changed_lines(diff) == ["+1", "+2"]


def test_a_file_that_becomes_something_else(plain: Work) -> None:
    for name in ("to_link", "to_folder", "to_pipe"):
        plain.write(name, "x\n")
    start = plain.take().snapshot
    for name in ("to_link", "to_folder", "to_pipe"):
        plain.agent_writes(name, "y\n")
        (plain.top / name).unlink()
    (plain.top / "to_link").symlink_to("a.txt")
    os.mkfifo(plain.top / "to_pipe")
    plain.agent_writes("to_folder/inner", "z\n")
    diff = plain.diff(start)
    assert {file.path: file.status for file in diff.files} == {
        "to_folder": "deleted",
        "to_folder/inner": "added",
        "to_link": "modified",
        "to_pipe": "deleted",
    }


def test_a_folder_that_was_a_file_when_it_was_kept(plain: Work) -> None:
    """Both cannot have been there at one time: the first noted one counts."""
    plain.write("x/inner", "1\n")
    start = plain.take().snapshot
    plain.agent_writes("x/inner", "2\n")
    shutil.rmtree(plain.top / "x")
    plain.write("x", "by a command\n")
    plain.agent_writes("x", "agent\n")
    assert {file.path: file.status for file in plain.diff(start).files} == {"x/inner": "deleted", "x": "added"}


def test_outside_the_folder_names_are_absolute(plain: Work, tmp_path: Path) -> None:
    outside = plain.write(tmp_path / "other folder" / "o.txt", LINES)
    start = plain.take().snapshot
    touched = plain.agent_writes(outside, LINES + "agent\n")
    plain.agent_writes("a.txt", LINES + "agent\n")
    diff = plain.diff(start, touched)
    assert [file.path for file in diff.files] == ["a.txt", str(outside)]
    assert f"--- {outside}\t\n+++ {outside}\t\n@@" in diff.unified
    assert diff.untracked == []


NAMES = [
    b"a b",
    b"n\nl",
    b"t\tx",
    b'"q"',
    "日本".encode(),
    b"bad\xff",
    b"-rf",
    b"$(x)",
    b":(glob)*",
    b"\\",
    b" ",
    b".git",
]


@pytest.mark.parametrize("kind", ["plain", "repo"])
def test_odd_names(kind: str, request: pytest.FixtureRequest) -> None:
    work: Work = request.getfixturevalue(kind)
    names = [os.fsdecode(b"build/" + name) for name in NAMES]
    for name in names:
        work.write(name, "one\n")
    start = work.take().snapshot
    touched = [work.agent_writes(name, "two\n") for name in names]
    diff = work.diff(start, *touched)
    assert sorted(file.path for file in diff.files) == sorted(names)
    assert all((file.added, file.removed, len(file.hunks)) == (1, 1, 1) for file in diff.files)
    assert diff.untracked == ([] if kind == "plain" else sorted(names))


def test_files_a_repository_ignores(repo: Work, tmp_path: Path) -> None:
    """Named, as git does not know them, and what changed in those that were there is shown."""
    repo.write("x.log", LINES)
    repo.write("build/by_command", "x\n")
    outside = repo.write(tmp_path / "outside.txt", LINES)
    start = repo.take().snapshot
    assert start.kind == "commit"
    touched = [
        repo.agent_writes("x.log", LINES.replace("line 5", "AGENT")),
        repo.agent_writes("build/new", "new\n"),
        repo.agent_writes(outside, LINES + "out\n"),
        repo.agent_writes("a.txt", LINES + "known\n"),
    ]
    repo.write("build/by_command", "y\n")
    diff = repo.diff(start, *touched)
    assert [file.path for file in diff.files] == ["a.txt", "x.log", str(outside)]
    assert changed_lines(diff) == ["+known", "-line 5", "+AGENT", "+out"]
    assert diff.untracked == sorted(["build/new", "x.log", str(outside)])
    assert diff.notice is None


def test_a_file_of_git_itself(repo: Work) -> None:
    start = repo.take().snapshot
    repo.agent_writes(".git/info/exclude", "*.tmp\n")
    diff = repo.diff(start)
    assert [file.path for file in diff.files] == [".git/info/exclude"] and diff.untracked == [".git/info/exclude"]


def test_an_ignored_file_that_is_as_before_again(repo: Work) -> None:
    repo.write("x.log", "before\n")
    start = repo.take().snapshot
    touched = [repo.agent_writes("x.log", text) for text in ("after\n", "before\n")]
    diff = repo.diff(start, *touched)
    assert (diff.files, diff.untracked) == ([], [])


def test_line_ends_and_settings_of_the_user_do_not_matter(plain: Work, tmp_path: Path) -> None:
    config = tmp_path / "gitconfig"
    config.write_text("[core]\n autocrlf = true\n[diff]\n noprefix = true\n external = /bin/false\n context = 0\n")
    plain.write("dos.txt", "a\r\nb\r\nc\r\n")
    start = plain.take().snapshot
    plain.agent_writes("dos.txt", "a\nb\nc\n")
    (file,) = plain.diff(start).files
    assert (file.added, file.removed) == (3, 3)


BOUNDS = {"SHADOW_FILE_BYTES": 50, "SHADOW_TOTAL_BYTES": 120, "SHADOW_FILES": 2}
WHY = {
    "SHADOW_FILE_BYTES": "it has over 0 MiB",
    "SHADOW_TOTAL_BYTES": "files of over 0 MiB in all",
    "SHADOW_FILES": "the request changed over 2 files",
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_are_told(bound: str, plain: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow_module, bound, BOUNDS[bound])
    for name in ("1", "2"):
        plain.write(name, "x\n" * 20)
    plain.write("3", "x\n" * 45)
    start = plain.take().snapshot
    touched = [plain.agent_writes(name, "new\n") for name in ("1", "2", "3")]
    diff = plain.diff(start, *touched)
    assert ([file.path for file in diff.files], diff.untracked) == (["1", "2"], ["3"])
    assert diff.notice and "what changed in " in diff.notice and WHY[bound] in diff.notice


def test_a_file_that_grew_too_large_to_compare(plain: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    start = plain.take().snapshot
    plain.agent_writes("a.txt", "x" * 5000)
    monkeypatch.setattr("aerix_server.session.shadow_diff.SHADOW_FILE_BYTES", 1000)
    diff = plain.diff(start)
    assert (diff.files, diff.untracked) == ([], ["a.txt"])
    assert diff.notice and "a.txt is not known: it has over" in diff.notice


def test_what_is_held_to_compare_is_bounded(plain: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    start = plain.take().snapshot
    for name in ("1", "2"):
        plain.agent_writes(name, "x\n" * 50)
    monkeypatch.setattr("aerix_server.session.shadow_diff.SHADOW_TOTAL_BYTES", 150)
    diff = plain.diff(start)
    assert ([file.path for file in diff.files], diff.untracked) == (["1"], ["2"])
    assert diff.notice and "/2 is not known: the changed files have over" in diff.notice


def test_a_store_that_cannot_be_written_stops_no_write(plain: Work) -> None:
    plain.store.parent.mkdir(parents=True)
    (plain.store.parent / "shadow").write_text("in the way")
    start = plain.take().snapshot
    touched = plain.agent_writes("a.txt", "agent\n")
    assert (plain.top / "a.txt").read_text() == "agent\n"
    diff = plain.diff(start, touched)
    assert (diff.files, diff.untracked) == ([], ["a.txt"])
    assert diff.notice and "a.txt is not known: " in diff.notice


def test_without_git_changed_files_are_named(plain: Work, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    start = plain.take().snapshot
    plain.agent_writes("a.txt", "agent\n")
    diff = plain.diff(start)
    assert (diff.files, diff.untracked) == ([], ["a.txt"])
    assert diff.notice and "what changed in a.txt is not known: git cannot be started" in diff.notice


def test_many_threads_keep_one_first_copy(tmp_path: Path) -> None:
    shadow = Shadow(tmp_path / "s")
    path = tmp_path / "f"
    path.write_text("first")
    gate = threading.Barrier(8)

    def write(number: int) -> None:
        gate.wait()
        shadow.keep(path)
        path.write_text(f"later {number}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (kept,) = shadow.kept()
    assert kept.copy and kept.copy.read_text() == "first"


def test_it_reads_back(plain: Work) -> None:
    plain.write(os.fsdecode(b"bad\xff\n"), "x\n").chmod(0o640)
    (plain.top / "link").symlink_to("nowhere")
    for path in ("a.txt", os.fsdecode(b"bad\xff\n"), "link", "absent", "."):
        plain.shadow.keep(plain.top / path)
    folder = plain.store.parent / "shadow" / "s" / "r1"
    kept = read_shadow(folder)
    assert kept == plain.shadow.kept()
    assert [item.kind for item in kept] == ["file", "file", "link", "absent", "other"]
    assert kept[1].mode == 0o640 and kept[2].copy and kept[2].copy.read_text() == "nowhere"
    with (folder / "kept.jsonl").open("ab") as file:
        file.write(b'{"path": "/x", "ki\n[]\n\xff\n{"path": "/y", "kind": "new kind", "mode": 0, "copy": null}\n\n{"pa')
    assert read_shadow(folder) == kept
    assert read_shadow(folder / "none") == []
    assert folder.stat().st_mode & 0o077 == 0


def test_of_several_requests_the_earliest_state_counts(tmp_path: Path) -> None:
    one, two, other = (Kept(tmp_path / name, kind) for name, kind in (("a", "absent"), ("a", "file"), ("b", "absent")))
    assert earliest([[one], [two, other]]) == [one, other]


def test_a_copy_that_is_gone_is_told(plain: Work) -> None:
    plain.shadow.keep(plain.top / "a.txt")
    (kept,) = plain.shadow.kept()
    assert kept.copy
    kept.copy.unlink()
    assert dict(look([kept]).unknown) == {plain.top / "a.txt": "No such file or directory"}


@given(before=st.binary(max_size=200), after=st.binary(max_size=200))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, before: bytes, after: bytes) -> None:
    work = Work(tmp_path_factory.mktemp("any"), tmp_path_factory.mktemp("private"))
    path = work.write("f", before)
    work.shadow.keep(path)
    path.write_bytes(after)
    looked = look(read_shadow(work.store.parent / "shadow" / "s" / "r1"))
    pairs = [(pair.before and pair.before.data, pair.now and pair.now.data) for pair in looked.changed]
    assert pairs == ([(before, after)] if before != after else [])
