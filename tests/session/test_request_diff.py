"""What a request changed, in real repositories of every state (G01, G02, G04 and their kinds)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aerix_server.protocol.events import DiffStat, Snapshot
from aerix_server.protocol.messages import DiffResult
from aerix_server.session import worktree
from aerix_server.session.diff import diff_since, stat_of
from aerix_server.session.diff_store import load_diff, save_diff
from aerix_server.session.project import project_of
from aerix_server.session.snapshot import NO_REPOSITORY, take_snapshot
from aerix_server.tools.files import list_files
from aerix_server.tools.git import GitFailed, git

HOSTILE = """
[core]
    quotePath = true
    pager = false
    fsmonitor = /bin/false
[color]
    ui = always
[diff]
    external = /bin/false
    noprefix = true
    mnemonicPrefix = true
    renames = false
    suppressBlankEmpty = true
    context = 0
    submodule = log
[diff "upper"]
    textconv = tr a-z A-Z <
    command = /bin/false
[user]
    name = T
    email = t@example.org
[init]
    defaultBranch = main
[protocol "file"]
    allow = always
"""


@pytest.fixture(autouse=True)
def hostile_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose git settings and environment would change what git prints."""
    config = tmp_path / "gitconfig"
    config.write_text(HOSTILE)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "/bin/false")


class Repo:
    def __init__(self, folder: Path, store: Path) -> None:
        self.top = folder
        self.store = store
        self.cwd = folder
        folder.mkdir(parents=True, exist_ok=True)

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.top, capture_output=True, check=True)
        return done.stdout.decode("utf-8", "surrogateescape")

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", "c")

    def snapshot(self) -> Snapshot:
        return take_snapshot(self.cwd, self.store).snapshot

    def diff(self, snapshot: Snapshot, *touched: str) -> DiffResult:
        return diff_since(self.cwd, self.store, snapshot, touched)

    def state(self) -> tuple[bytes, ...]:
        """Everything of .git that could tell that we were there."""
        paths = sorted(path for path in (self.top / ".git").rglob("*") if path.is_file())
        return tuple(os.fsencode(path) + path.read_bytes() for path in paths)


@pytest.fixture
def empty(tmp_path: Path) -> Repo:
    repo = Repo(tmp_path / "repo", tmp_path / "store" / "objects")
    repo.git("init", "-q")
    return repo


@pytest.fixture
def repo(empty: Repo) -> Repo:
    empty.write("a.txt", "".join(f"line {number}\n" for number in range(1, 31)))
    empty.write("src/b.py", "one\ntwo\n")
    empty.commit()
    return empty


def plus(diff: DiffResult) -> list[str]:
    return [line for line in diff.unified.split("\n") if line.startswith(("+", "-")) and line[:3] not in ("+++", "---")]


def test_a_clean_tree_starts_from_its_commit(repo: Repo) -> None:
    before = repo.state()
    taken = take_snapshot(repo.cwd, repo.store)
    assert taken.snapshot == Snapshot(kind="commit", ref=repo.git("rev-parse", "HEAD").strip())
    assert taken.git and (taken.git.branch, taken.git.dirty) == ("main", False)
    assert repo.diff(taken.snapshot) == DiffResult(files=[], untracked=[], unified="", notice=None)
    assert repo.state() == before


def test_an_edit_shows_with_stable_hunks(repo: Repo) -> None:
    start = repo.snapshot()
    lines = (repo.top / "a.txt").read_text().split("\n")
    lines[1], lines[25] = "LINE 2", "LINE 26"
    repo.write("a.txt", "\n".join(lines))
    diff = repo.diff(start, "a.txt")
    (file,) = diff.files
    assert (file.path, file.status, file.added, file.removed, file.binary) == ("a.txt", "modified", 2, 2, False)
    first, second = file.hunks
    assert (first.old_start, first.old_lines, first.new_start, first.new_lines) == (1, 5, 1, 5)
    assert first.text.startswith(" line 1\n-line 2\n+LINE 2\n line 3\n")
    assert diff.unified.startswith("diff --git a/a.txt b/a.txt\n") and "\x1b" not in diff.unified
    assert stat_of(diff) == DiffStat(added=2, removed=2, files=1)
    repo.write("a.txt", "new first line\n" + "\n".join(lines))
    assert repo.diff(start).files[0].hunks[1].id == second.id
    assert diff.untracked == [] and diff.notice is None


def test_the_text_can_be_applied(repo: Repo) -> None:
    start = repo.snapshot()
    repo.write("a.txt", "only\n")
    repo.write("src/b.py", "one\ntwo")
    diff = repo.diff(start)
    repo.git("checkout", "-q", ".")
    subprocess.run(["git", "apply", "-"], cwd=repo.top, input=diff.unified.encode(), check=True)
    assert (repo.top / "a.txt").read_text() == "only\n" and (repo.top / "src/b.py").read_text() == "one\ntwo"


def test_edits_from_before_are_not_shown(repo: Repo) -> None:
    repo.write("a.txt", "staged by the user\n")
    repo.git("add", "a.txt")
    repo.write("src/b.py", "edited by the user\n")
    before = repo.state()
    start = repo.snapshot()
    assert start.kind == "tree"
    assert repo.diff(start).files == []
    repo.write("src/b.py", "edited by the user\nand the agent\n")
    assert plus(repo.diff(start)) == ["+and the agent"]
    assert repo.state() == before


def test_a_new_file_is_named_and_not_shown(repo: Repo) -> None:
    start = repo.snapshot()
    repo.write("src/new.py", "x\n")
    diff = repo.diff(start, "src/new.py")
    assert (diff.untracked, diff.files, diff.unified) == (["src/new.py"], [], "")
    repo.git("add", "src/new.py")
    diff = repo.diff(start, "src/new.py")
    assert [(file.path, file.status, file.added) for file in diff.files] == [("src/new.py", "added", 1)]
    assert diff.untracked == []


def test_a_new_file_that_came_by_a_command_is_named_too(repo: Repo) -> None:
    start = repo.snapshot()
    repo.write("made", "x\n")
    assert repo.diff(start).untracked == ["made"]


def test_a_commit_by_the_agent_is_still_its_change(repo: Repo) -> None:
    start = repo.snapshot()
    repo.write("a.txt", "committed\n")
    repo.commit()
    assert "+committed" in plus(repo.diff(start))


def test_without_commits(empty: Repo) -> None:  # G01
    start = empty.snapshot()
    assert start.kind == "empty" and start.notice is None
    empty.write("n", "x\n")
    assert empty.diff(start).untracked == ["n"]
    middle = empty.snapshot()
    assert middle.kind == "tree"
    empty.write("n", "x\ny\n")
    assert plus(empty.diff(middle)) == ["+y"]
    empty.git("add", "n")
    assert plus(empty.diff(start)) == ["+x", "+y"]


def conflict(repo: Repo) -> None:
    repo.git("checkout", "-qb", "other")
    repo.write("src/b.py", "other\n")
    repo.commit()
    repo.git("checkout", "-q", "main")
    repo.write("src/b.py", "ours\n")
    repo.commit()
    subprocess.run(["git", "merge", "-q", "other"], cwd=repo.top, capture_output=True)
    assert repo.git("ls-files", "--unmerged")


def test_a_merge_in_progress(repo: Repo) -> None:  # G02
    conflict(repo)
    before = repo.state()
    start = repo.snapshot()
    assert start.kind == "tree" and start.notice and "merge or rebase is in progress" in start.notice
    assert repo.diff(start).files == []
    repo.write("src/b.py", "resolved\n")
    diff = repo.diff(start, "src/b.py")
    assert [file.path for file in diff.files] == ["src/b.py"] and "+resolved" in plus(diff)
    assert diff.notice and "merge" in diff.notice
    assert repo.state() == before
    repo.commit()
    assert "+resolved" in plus(repo.diff(start))


def test_untracked_files_of_the_user(repo: Repo) -> None:  # G04
    repo.write("n", "the user's\n")
    repo.write("gone", "x\n")
    start = repo.snapshot()
    assert start.kind == "tree"
    repo.write("n", "the user's\nthe agent's\n")
    (repo.top / "gone").unlink()
    diff = repo.diff(start, "n")
    assert plus(diff) == ["-x", "+the agent's"] and diff.untracked == []
    assert [(file.path, file.status) for file in diff.files] == [("gone", "deleted"), ("n", "modified")]


def test_ignored_files_are_named_when_touched(repo: Repo) -> None:  # G04
    repo.write(".gitignore", "*.log\n")
    repo.commit()
    repo.write("x.log", "before\n")
    repo.write("y.log", "before\n")
    start = repo.snapshot()
    assert start.kind == "commit"
    repo.write("x.log", "after\n")
    diff = repo.diff(start, str(repo.top / "x.log"), "gone.log")
    assert (diff.untracked, diff.files) == (["x.log"], [])


NAMES = [b"a b", b"n\nl", b"t\tx", b'"q"', "日本".encode(), b"bad\xff", b"-rf", b"$(x)", b":(glob)*", b"*", b"\\", b" "]


@pytest.mark.parametrize("known", [True, False])
def test_odd_names(repo: Repo, known: bool) -> None:
    folder = os.fsencode(repo.top)
    for name in NAMES:
        Path(os.fsdecode(os.path.join(folder, name))).write_text("one\n")
    if known:
        repo.commit()
    start = repo.snapshot()
    for name in NAMES:
        Path(os.fsdecode(os.path.join(folder, name))).write_text("two\n")
    diff = repo.diff(start)
    assert sorted(os.fsencode(file.path) for file in diff.files) == sorted(NAMES)
    assert all((file.added, file.removed, len(file.hunks)) == (1, 1, 1) for file in diff.files)
    assert '"a/n\\nl"' in diff.unified and "日本" in diff.unified


def test_odd_names_of_new_files(repo: Repo) -> None:
    start = repo.snapshot()
    for name in NAMES:
        Path(os.fsdecode(os.path.join(os.fsencode(repo.top), name))).write_text("one\n")
    assert sorted(os.fsencode(path) for path in repo.diff(start).untracked) == sorted(NAMES)


def test_binary_mode_rename_delete_link_and_kind(repo: Repo) -> None:
    repo.write("bin", b"\0\1\2" * 99)
    repo.write("run.sh", "#!/bin/sh\n")
    repo.write("old name.txt", "".join(f"{number}\n" for number in range(50)))
    (repo.top / "link").symlink_to("a.txt")
    repo.write("becomes_link", "text\n")
    repo.write("becomes_folder", "text\n")
    repo.commit()
    start = repo.snapshot()
    repo.write("bin", b"\0\1\3" * 99)
    (repo.top / "run.sh").chmod(0o755)
    repo.git("mv", "old name.txt", "new name.txt")
    (repo.top / "src/b.py").unlink()
    (repo.top / "link").unlink()
    (repo.top / "link").symlink_to("src")
    (repo.top / "becomes_link").unlink()
    (repo.top / "becomes_link").symlink_to("a.txt")
    (repo.top / "becomes_folder").unlink()
    repo.write("becomes_folder/inner", "x\n")
    repo.write("a.txt", "last\n")
    diff = repo.diff(start)
    assert {file.path: file.status for file in diff.files} == {
        "bin": "modified",
        "run.sh": "mode",
        "new name.txt": "renamed",
        "src/b.py": "deleted",
        "link": "modified",
        "becomes_link": "modified",
        "becomes_folder": "deleted",
        "a.txt": "modified",
    }
    by_path = {file.path: file for file in diff.files}
    assert by_path["bin"].binary and by_path["bin"].hunks == []
    assert by_path["run.sh"].hunks == [] and "new mode 100755" in diff.unified
    assert "rename from old name.txt" in diff.unified
    assert [hunk.text for hunk in by_path["link"].hunks] == [
        "-a.txt\n\\ No newline at end of file\n+src\n\\ No newline at end of file\n"
    ]
    assert len(by_path["becomes_link"].hunks) == 2
    assert "+last" in by_path["a.txt"].hunks[0].text
    assert diff.untracked == ["becomes_folder/inner"]


@pytest.mark.parametrize("autocrlf", ["true", "false", "input"])
def test_line_ends(repo: Repo, autocrlf: str) -> None:
    repo.git("config", "core.autocrlf", autocrlf)
    repo.git("config", "core.safecrlf", "true")
    repo.write("dos.txt", "a\r\nb\r\nc\r\n")
    repo.git("-c", "core.safecrlf=false", "add", "-A")
    repo.git("commit", "-qm", "c")
    start = repo.snapshot()
    assert repo.diff(start).files == []
    repo.write("dos.txt", "a\r\nB\r\nc\r\n")
    (file,) = repo.diff(start).files
    assert (file.added, file.removed) == (1, 1)


def test_lines_that_look_like_heads_and_text_that_is_no_utf8(repo: Repo) -> None:
    repo.write("a.txt", b"diff --git a/x b/x\n@@ -1 +1 @@\n-- \n\xff\n\r\x0c\x1c x\n")
    repo.commit()
    start = repo.snapshot()
    repo.write("a.txt", b"diff --git a/y b/y\n@@ -1 +1 @@\n++ \n\xfe\n\r\x0c\x1c x\n")
    repo.write("src/b.py", "z\n")
    diff = repo.diff(start)
    assert [(file.path, file.added, file.removed, len(file.hunks)) for file in diff.files] == [
        ("a.txt", 3, 3, 1),
        ("src/b.py", 1, 2, 1),
    ]


def test_textconv_is_not_run(repo: Repo) -> None:
    repo.write(".gitattributes", "*.txt diff=upper\n")
    repo.commit()
    start = repo.snapshot()
    repo.write("a.txt", "quiet\n")
    assert "+quiet" in plus(repo.diff(start))


def test_below_the_top_and_outside(repo: Repo, tmp_path: Path) -> None:
    repo.cwd = repo.top / "src"
    outside = tmp_path / "outside.txt"
    start = repo.snapshot()
    outside.write_text("x")
    repo.write("src/b.py", "changed\n")
    repo.write("src/new", "x\n")
    diff = repo.diff(start, "b.py", "new", "../../outside.txt")
    assert [file.path for file in diff.files] == ["src/b.py"]
    assert diff.untracked == sorted([str(outside), "src/new"])


def test_reached_through_a_link(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(repo.top)
    repo.cwd = tmp_path / "link"
    start = repo.snapshot()
    repo.write("a.txt", "x\n")
    repo.write("new", "x\n")
    diff = repo.diff(start, str(tmp_path / "link" / "a.txt"), str(tmp_path / "link" / "new"))
    assert ([file.path for file in diff.files], diff.untracked) == (["a.txt"], ["new"])


def test_a_worktree_and_a_detached_head(repo: Repo, tmp_path: Path) -> None:
    repo.git("worktree", "add", "-q", "--detach", str(tmp_path / "tree"))
    other = Repo(tmp_path / "tree", repo.store)
    taken = take_snapshot(other.cwd, other.store)
    assert taken.git and taken.git.branch is None and taken.snapshot.kind == "commit"
    other.write("a.txt", "x\n")
    assert [file.path for file in other.diff(taken.snapshot).files] == ["a.txt"]
    assert repo.diff(repo.snapshot()).files == []


def test_a_submodule_and_a_repository_inside(repo: Repo, tmp_path: Path) -> None:
    inner = Repo(tmp_path / "inner", repo.store)
    inner.git("init", "-q")
    inner.write("i.txt", "x\n")
    inner.commit()
    repo.git("submodule", "--quiet", "add", str(inner.top), "sub")
    repo.commit()
    nested = Repo(repo.top / "nested", repo.store)
    nested.git("init", "-q")
    nested.write("n.txt", "x\n")
    start = repo.snapshot()
    repo.write("sub/i.txt", "changed\n")
    repo.write("nested/n.txt", "changed\n")
    diff = repo.diff(start, "sub/i.txt", "nested/n.txt")
    assert (diff.files, diff.untracked) == ([], ["nested/n.txt", "sub/i.txt"])
    subprocess.run(["git", "commit", "-qam", "d"], cwd=repo.top / "sub", check=True)
    diff = repo.diff(start)
    assert [file.path for file in diff.files] == ["sub"] and "+Subproject commit" in diff.unified


@pytest.mark.parametrize("prepare", [lambda path: None, lambda path: (path / ".git").write_text("gitdir: nowhere")])
def test_outside_a_repository(tmp_path: Path, prepare: Callable[[Path], None]) -> None:
    repo = Repo(tmp_path / "plain", tmp_path / "store")
    prepare(repo.top)
    start = repo.snapshot()
    assert (start.kind, start.ref) == ("none", None)
    made = repo.write("made", "x")
    diff = repo.diff(start, "made", "never made")
    assert (diff.files, diff.untracked, diff.unified) == ([], [made.name], "")
    assert diff.notice and diff.notice.startswith((NO_REPOSITORY, "no snapshot could be taken"))


def test_inside_the_git_folder_is_outside(repo: Repo) -> None:
    repo.cwd = repo.top / ".git"
    assert repo.snapshot().notice == NO_REPOSITORY


def test_without_git(repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    start = repo.snapshot()
    assert start.kind == "none" and start.notice and "git cannot be started" in start.notice
    diff = repo.diff(start, "a.txt")
    assert diff.files == [] and diff.notice and "git cannot be started" in diff.notice


def test_of_a_repositorys_own_commands_only_clean_filters_are_run(repo: Repo, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    ran.mkdir()
    repo.write(".gitattributes", "*.txt filter=own diff=own\n")
    repo.commit()
    for name in ("post-index-change", "reference-transaction", "pre-commit", "fsmonitor-watchman", "pre-auto-gc"):
        hook = repo.write(f".git/hooks/{name}", f"#!/bin/sh\ntouch {ran}/{name}\n")
        hook.chmod(0o755)
    for key in ("core.fsmonitor", "core.sshCommand", "diff.external", "diff.own.command", "diff.own.textconv"):
        repo.git("config", key, f"touch {ran}/{key}; cat")
    repo.git("config", "filter.own.clean", f"touch {ran}/clean; tr a-z A-Z")
    start = repo.snapshot()
    repo.write("a.txt", "quiet\n")
    repo.write("new.txt", "new\n")
    assert "+QUIET" in plus(repo.diff(start, "new.txt"))
    list_files(repo.top, lambda: False)
    project_of(repo.top)
    assert [path.name for path in ran.iterdir()] == ["clean"]


def test_a_git_that_hangs_is_bounded(repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nsleep 600 & wait\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    with pytest.raises(GitFailed, match="did not end within"):
        git(["status"], repo.top, timeout_s=0.2)


def test_an_environment_that_names_another_repository_does_not_matter(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start = repo.snapshot()
    repo.write("a.txt", "x\n")
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY", "GIT_CEILING_DIRECTORIES"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    assert [file.path for file in repo.diff(start).files] == ["a.txt"]


def test_large_untracked_files_are_left_out_and_said(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktree, "UNTRACKED_FILE_BYTES", 1024)
    repo.write("big", b"x" * 2000)
    repo.write("grows", b"x\n")
    start = repo.snapshot()
    assert start.notice and "big" in start.notice
    repo.write("big", b"y" * 2000)
    repo.write("grows", b"x\n" * 2000)
    diff = repo.diff(start, "big", "grows", "a.txt")
    assert (diff.files, diff.untracked) == ([], ["big", "grows"])
    assert diff.notice and "big, grows" in diff.notice


def test_too_many_untracked_files_are_left_out_and_said(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktree, "UNTRACKED_FILES", 5)
    for number in range(9):
        repo.write(f"u{number}", "x\n")
    start = repo.snapshot()
    assert start.notice and "4 files untracked" in start.notice and "and 1 more" in start.notice


def test_a_huge_diff_is_cut_and_said(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aerix_server.session.compare.UNIFIED_BYTES", 3000)
    start = repo.snapshot()
    repo.write("a.txt", "small\n")
    repo.write("src/b.py", "x\n" * 5000)
    diff = repo.diff(start)
    assert [(file.path, file.added, len(file.hunks)) for file in diff.files] == [("a.txt", 1, 1), ("src/b.py", 5000, 0)]
    assert "src/b.py" not in diff.unified and diff.notice and "1 of 2 files" in diff.notice


def test_a_store_with_a_colon_and_spaces_in_its_path(repo: Repo, tmp_path: Path) -> None:
    moved = Repo(tmp_path / 'x: "y"' / "repo", tmp_path / "st: ore")
    os.rename(repo.top, moved.top)
    moved.write("n", "x\n")
    start = moved.snapshot()
    assert start.kind == "tree"
    moved.write("n", "y\n")
    assert plus(moved.diff(start)) == ["-x", "+y"]


def test_a_change_of_the_same_size_right_after_the_commit_is_seen(repo: Repo) -> None:
    for number in range(6):
        text = f"{number:04}\n"
        repo.write("race", text)
        repo.commit()
        repo.write("race", text[::-1].strip() + "\n")
        start = repo.snapshot()
        repo.write("race", "zzzz\n")
        assert [file.path for file in repo.diff(start).files] == ["race"]
        assert plus(repo.diff(start))[0] == "-" + text[::-1].strip()


def test_a_kept_diff_loads_again(repo: Repo, tmp_path: Path) -> None:
    Path(os.fsdecode(os.path.join(os.fsencode(repo.top), b"bad\xff"))).write_text("one\n")
    start = repo.snapshot()
    Path(os.fsdecode(os.path.join(os.fsencode(repo.top), b"bad\xff"))).write_text("two\n")
    diff = repo.diff(start)
    save_diff(tmp_path / "diffs" / "r1.json", diff)
    assert load_diff(tmp_path / "diffs" / "r1.json") == diff
    assert load_diff(tmp_path / "diffs" / "r2.json") is None
    (tmp_path / "diffs" / "r1.json").write_text("{")
    assert load_diff(tmp_path / "diffs" / "r1.json") is None
