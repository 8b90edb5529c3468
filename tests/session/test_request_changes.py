"""Every kind of change a request can make, in a repository; and repositories git refuses, where only the kept copies
tell what changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.session.repository_kit import LINES, Work, changed_lines, git_in_between, impatient, run_git, tree_of
from tests.session.test_repository_states import filled, settings

__all__ = ["settings"]  # The fixture serves here too.


@pytest.fixture
def work(tmp_path: Path) -> Work:
    made = Work(tmp_path / "work", tmp_path / "private")
    filled(made)
    return made


def again(work: Work, name: str, change: Callable[[Path], None], back: Callable[[Path], None]) -> None:
    change(work.top / name)
    back(work.top / name)


def to_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("b.txt")


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "x").write_text("x\n")


def to_file(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.write_text(LINES)


def run(*arguments: str) -> Callable[[Work], None]:
    def change(work: Work) -> None:
        work.git(*arguments)

    return change


def edited_then(*commands: tuple[str, ...]) -> Callable[[Work], None]:
    def change(work: Work) -> None:
        work.write("a.txt", LINES + "more\n")
        for command in commands:
            work.git(*command)

    return change


EDITED = [("a.txt", "modified")]
CHANGES: dict[str, tuple[Callable[[Work], object], list[tuple[str, str]], list[str]]] = {
    "nothing": (lambda work: None, [], []),
    "link_and_back": (lambda work: again(work, "a.txt", to_link, to_file), [], []),
    "folder_and_back": (lambda work: again(work, "a.txt", to_folder, to_file), [], []),
    "to_link": (lambda work: to_link(work.top / "a.txt"), [("a.txt", "modified")], []),
    "to_folder": (lambda work: to_folder(work.top / "a.txt"), [("a.txt", "deleted")], ["a.txt/x"]),
    "folder_to_file": (lambda work: to_file(work.top / "sub"), [("sub/c.txt", "deleted")], ["sub"]),
    "folder_to_link": (
        lambda work: (shutil.rmtree(work.top / "sub"), (work.top / "sub").symlink_to("."))[0],
        [("sub/c.txt", "deleted")],
        ["sub"],
    ),
    "mode": (lambda work: (work.top / "a.txt").chmod(0o755), [("a.txt", "mode")], []),
    "mode_of_no_one": (lambda work: (work.top / "a.txt").chmod(0o600), [], []),
    "renamed": (run("mv", "a.txt", "z.txt"), [("z.txt", "renamed")], []),
    "renamed_by_the_shell": (
        lambda work: (work.top / "a.txt").rename(work.top / "z.txt"),
        [("a.txt", "deleted")],
        ["z.txt"],
    ),
    "deleted": (lambda work: (work.top / "a.txt").unlink(), [("a.txt", "deleted")], []),
    "emptied": (lambda work: work.write("a.txt", ""), EDITED, []),
    "new_and_empty": (lambda work: work.write("z", ""), [], ["z"]),
    "binary": (lambda work: work.write("a.txt", b"\0\xff"), EDITED, []),
    "empty_folder": (lambda work: (work.top / "hollow").mkdir(), [], []),
    "staged": (edited_then(("add", "-A")), EDITED, []),
    "committed": (edited_then(("add", "-A"), ("commit", "-qm", "x")), EDITED, []),
    "amended": (edited_then(("commit", "-qa", "--amend", "-m", "x")), EDITED, []),
    "stashed_away": (edited_then(("stash", "-q")), [], []),
    "on_another_branch": (edited_then(("checkout", "-qb", "x")), EDITED, []),
    "no_longer_known": (run("rm", "-q", "--cached", "a.txt"), [], []),
    "no_longer_known_and_ignored": (
        lambda work: (work.git("rm", "-q", "--cached", "a.txt"), work.write(".git/info/exclude", "a.txt\n")),
        [],
        [],
    ),
    "ignored_and_edited": (
        lambda work: (work.write(".git/info/exclude", "*.mine\n"), work.write("user.mine", "agent's\n")),
        [("user.mine", "modified")],
        [],
    ),
    "ignored": (lambda work: work.write(".git/info/exclude", "*.mine\n"), [], []),
    "a_repository_of_its_own": (lambda work: run_git(work.top / "sub", "init", "-q"), [], []),
    "head_broken": (lambda work: work.write(".git/refs/heads/main", "x\n"), [], []),
    "index_broken": (lambda work: work.write(".git/index", "garbage"), [], []),
    "index_gone": (lambda work: (work.top / ".git" / "index").unlink(), [], []),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change(work: Work, name: str) -> None:
    change, files, untracked = CHANGES[name]
    work.write("user.mine", "the user's\n")
    start = work.take().snapshot
    change(work)
    before = tree_of(work.top)
    diff = work.diff(start)
    assert ([(file.path, file.status) for file in diff.files], diff.untracked) == (files, untracked)
    assert tree_of(work.top) == before
    only_names = all(file.status == "mode" or file.binary or not file.added + file.removed for file in diff.files)
    assert bool(changed_lines(diff)) == (not only_names)


def test_edits_of_the_user_meanwhile_are_part_of_it(work: Work) -> None:
    """Git cannot tell who changed a file; what was there before is still not shown."""
    work.write("b.txt", LINES.replace("line 1\n", "before\n"))
    start = work.take().snapshot
    work.agent_writes("a.txt", LINES + "agent\n")
    work.write("b.txt", LINES.replace("line 1\n", "before\n") + "meanwhile\n")
    assert changed_lines(work.diff(start)) == ["+agent", "+meanwhile"]


def test_files_of_a_sparse_checkout_that_come_and_go(work: Work) -> None:
    work.git("sparse-checkout", "set", "--no-cone", "/*", "!b.txt", "!sub/")
    taken = work.take()
    assert taken.git and not taken.git.dirty
    work.agent_writes("b.txt", "here\n")
    diff = work.diff(taken.snapshot)
    assert [(file.path, file.status, file.added) for file in diff.files] == [("b.txt", "added", 1)]
    middle = work.take().snapshot
    (work.top / "b.txt").unlink()
    assert [(file.path, file.status) for file in work.diff(middle).files] == [("b.txt", "deleted")]


def test_a_mode_where_modes_do_not_count(work: Work) -> None:
    work.git("config", "core.fileMode", "false")
    start = work.take().snapshot
    (work.top / "a.txt").chmod(0o755)
    assert work.diff(start).files == []


def test_a_known_file_that_its_filter_refuses(work: Work) -> None:
    """As where a large-file store's program is missing: the rest is compared, and this file from its copy."""
    work.write(".gitattributes", "b.txt filter=f\n")
    work.commit()
    work.git("config", "filter.f.clean", "exit 3")
    work.git("config", "filter.f.required", "true")
    start = work.take().snapshot
    work.agent_writes("b.txt", LINES + "agent\n")
    work.agent_writes("a.txt", LINES + "agent\n")
    diff = work.diff(start)
    assert [(file.path, file.added, file.removed) for file in diff.files] == [("a.txt", 1, 0), ("b.txt", 1, 0)]
    assert diff.untracked == ["b.txt"]
    assert diff.notice and "1 file that git could not read, taken as unchanged: b.txt (" in diff.notice


def test_many_files_that_a_filter_refuses(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aerix_server.session.refusals.GIT_REFUSALS", 3)
    for number in range(20):
        work.write(f"f{number}.bin", "x\n")
    work.write(".gitattributes", "*.bin filter=f\n")
    work.git("config", "filter.f.clean", "exit 3")
    work.git("config", "filter.f.required", "true")
    start = work.take().snapshot
    assert start.kind == "tree" and start.notice and "and 17 more (" in start.notice
    work.agent_writes("a.txt", "agent\n")
    assert [file.path for file in work.diff(start).files] == ["a.txt"]


@pytest.mark.parametrize("where", ["module/b.txt", "nested/b.txt"])
def test_a_file_in_a_repository_inside(work: Work, tmp_path: Path, where: str) -> None:
    inner = Work(tmp_path / "inner", tmp_path)
    filled(inner)
    work.git("submodule", "--quiet", "add", str(inner.top), "module")
    work.commit()
    filled(Work(work.top / "nested", tmp_path))
    start = work.take().snapshot
    work.agent_writes(where, LINES + "agent\n")
    diff = work.diff(start)
    assert ([file.path for file in diff.files], changed_lines(diff), diff.untracked) == ([where], ["+agent"], [where])
    assert diff.notice and "repositories inside this one (nested/" in diff.notice
    assert ("module" in diff.notice) == where.startswith("module")


def bare(work: Work, tmp: Path) -> None:
    shutil.rmtree(work.top)
    run_git(tmp, "init", "-q", "--bare", str(work.top))


def no_folder_behind_git(work: Work, tmp: Path) -> None:
    shutil.rmtree(work.top / ".git")
    (work.top / ".git").write_text("gitdir: nowhere\n")


def git_folder_is_empty(work: Work, tmp: Path) -> None:
    shutil.rmtree(work.top / ".git")
    (work.top / ".git").mkdir()


def head_is_garbage(work: Work, tmp: Path) -> None:
    work.write(".git/HEAD", "garbage\n")


def config_is_garbage(work: Work, tmp: Path) -> None:
    work.write(".git/config", "[core\n")


def format_is_unknown(work: Work, tmp: Path) -> None:
    work.git("config", "core.repositoryFormatVersion", "99")


REFUSED: dict[str, tuple[Callable[[Work, Path], None], str, str]] = {
    "plain_folder": (lambda work, tmp: shutil.rmtree(work.top / ".git"), "", "outside a git repository"),
    "bare": (bare, "", "outside a git repository"),
    "no_folder_behind_git": (no_folder_behind_git, "", "git takes "),
    "git_folder_is_empty": (git_folder_is_empty, "", "git takes "),
    "head_is_garbage": (head_is_garbage, "", "git takes "),
    "config_is_garbage": (config_is_garbage, "", "bad config line 1"),
    "format_is_unknown": (format_is_unknown, "", "99"),
    "of_another_user": (
        lambda work, tmp: None,
        'GIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec $REAL "$@"',
        "dubious ownership",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_git_does_not_serve(name: str, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, script, why = REFUSED[name]
    prepare(work, tmp_path)
    work.write("a.txt", LINES)
    work.write("gone.txt", LINES)
    if script:
        git_in_between(tmp_path, script, monkeypatch)
    before = tree_of(work.top / ".git")
    taken = work.take()
    assert (taken.snapshot.kind, taken.git) == ("none", None)
    assert taken.snapshot.notice and "only files changed by edit and write are compared" in taken.snapshot.notice
    assert why in taken.snapshot.notice
    work.agent_writes("a.txt", LINES.replace("line 5", "AGENT"))
    work.agent_writes("new.txt", "new\n")
    work.agent_writes("gone.txt", "x\n")
    (work.top / "gone.txt").unlink()
    diff = work.diff(taken.snapshot, "a.txt", "new.txt", "gone.txt")
    assert [(file.path, file.status) for file in diff.files] == [
        ("a.txt", "modified"),
        ("gone.txt", "deleted"),
        ("new.txt", "added"),
    ]
    assert changed_lines(diff)[:2] == ["-line 5", "+AGENT"] and changed_lines(diff)[-1] == "+new"
    assert (diff.untracked, diff.notice) == ([], taken.snapshot.notice)
    assert tree_of(work.top / ".git") == before


def test_a_repository_that_comes_or_goes_meanwhile(work: Work) -> None:
    start = work.take().snapshot
    work.agent_writes("a.txt", "agent\n")
    shutil.rmtree(work.top / ".git")
    diff = work.diff(start)
    assert [file.path for file in diff.files] == ["a.txt"] and diff.notice and "repository is gone" in diff.notice
    without = work.take().snapshot
    work.git("init", "-q")
    assert [file.path for file in work.diff(without).files] == ["a.txt"]


COMMANDS = ("add", "ls-files", "write-tree", "diff-tree", "update-index", "rev-parse")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_git_that_hangs_at_one_command(
    command: str, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, lambda name: name == command)
    work.write("untracked.txt", "x\n")
    start = work.take().snapshot
    hang = f'case " $* " in *" {command} "*) sleep 600 & wait;; esac\nexec $REAL "$@"'
    git_in_between(tmp_path, hang, monkeypatch)
    work.agent_writes("a.txt", "agent\n")
    diff = work.diff(start)
    assert diff.notice and f"git {command} did not end within 0.2 s" in diff.notice
    assert [file.path for file in diff.files] == ([] if command == "diff-tree" else ["a.txt"])
    late = work.take().snapshot
    assert late.kind == ("tree" if command == "diff-tree" else "none")


@pytest.mark.parametrize("url", ["ssh://nowhere.invalid/x", "ext::sh -c touch% {ran}"])
def test_what_a_partial_clone_lacks_is_not_fetched(work: Work, tmp_path: Path, url: str) -> None:
    """A fetch would run a command that the repository's own settings name."""
    ran = tmp_path / "ran"
    work.write("a.txt", "of this file alone\n")
    work.commit()
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": url.format(ran=ran),
        "core.sshCommand": f"touch {ran}; false",
        "protocol.allow": "always",
    }.items():
        work.git("config", key, value)
    # Old enough for git not to read it again, which would bring the text back.
    os.utime(work.top / "a.txt", (1e9, 1e9))
    work.git("status")
    lost = work.git("rev-parse", "HEAD:a.txt").strip()
    (work.top / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
    start = work.take().snapshot
    work.agent_writes("a.txt", "of this file alone\nagent\n")
    diff = work.diff(start)
    assert not ran.exists()
    assert [file.path for file in diff.files] == ["a.txt"] and changed_lines(diff) == ["+agent"]
    assert diff.notice and "only files changed by edit and write are compared: " in diff.notice
