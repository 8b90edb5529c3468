"""Every state a repository can be in: a request never fails for it, its diff shows only what changed while it ran, and
the user's `.git` is byte for byte what it was (pitfalls G and their kind)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.session.repository_kit import LINES, Work, changed_lines, run_git, tree_of

State = Callable[[Work, Path], None]
STATES: dict[str, State] = {}

SETTINGS = """
[user]
    name = T
    email = t@example.org
[init]
    defaultBranch = main
[protocol "file"]
    allow = always
[advice]
    detachedHead = false
"""


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gitconfig").write_text(SETTINGS)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_EDITOR", "true")


def state(function: State) -> State:
    STATES[function.__name__] = function
    return function


def filled(work: Work, *init: str) -> None:
    work.git("init", "-q", *init)
    work.write("a.txt", LINES)
    work.write("b.txt", LINES)
    work.write("sub/c.txt", LINES)
    work.commit()


def two_branches(work: Work) -> None:
    """Both change line 9 of b.txt; `main` is checked out."""
    filled(work)
    work.git("checkout", "-qb", "other")
    work.write("b.txt", LINES.replace("line 9", "other 9"))
    work.commit()
    work.git("checkout", "-q", "main")
    work.write("b.txt", LINES.replace("line 9", "main 9"))
    work.commit()


@state
def plain(work: Work, tmp: Path) -> None:
    filled(work)


@state
def no_commits(work: Work, tmp: Path) -> None:
    work.git("init", "-q")
    work.write("a.txt", LINES)


@state
def no_commits_and_staged(work: Work, tmp: Path) -> None:
    no_commits(work, tmp)
    work.git("add", "a.txt")


@state
def orphan_branch(work: Work, tmp: Path) -> None:
    filled(work)
    work.git("checkout", "-q", "--orphan", "fresh")


@state
def merge(work: Work, tmp: Path) -> None:
    two_branches(work)
    work.git("merge", "-q", "other", ok=False)
    assert work.git("ls-files", "--unmerged")


@state
def merge_of_deleted(work: Work, tmp: Path) -> None:
    filled(work)
    work.git("checkout", "-qb", "other")
    work.git("rm", "-q", "b.txt")
    work.commit()
    work.git("checkout", "-q", "main")
    work.write("b.txt", LINES.replace("line 9", "main 9"))
    work.commit()
    work.git("merge", "-q", "other", ok=False)
    assert work.git("ls-files", "--unmerged")


@state
def rebase(work: Work, tmp: Path) -> None:
    two_branches(work)
    work.git("rebase", "-q", "other", ok=False)
    assert (work.top / ".git" / "rebase-merge").is_dir()


@state
def cherry_pick(work: Work, tmp: Path) -> None:
    two_branches(work)
    work.git("cherry-pick", "other", ok=False)
    assert (work.top / ".git" / "CHERRY_PICK_HEAD").exists()


@state
def revert(work: Work, tmp: Path) -> None:
    two_branches(work)
    work.write("b.txt", "else\n")
    work.commit()
    work.git("revert", "--no-edit", "HEAD~1", ok=False)
    assert (work.top / ".git" / "REVERT_HEAD").exists()


@state
def bisect(work: Work, tmp: Path) -> None:
    two_branches(work)
    work.git("bisect", "start", "main", "main~1")


@state
def stash_that_conflicts(work: Work, tmp: Path) -> None:
    filled(work)
    work.write("b.txt", LINES.replace("line 9", "stashed"))
    work.git("stash", "-q")
    work.write("b.txt", LINES.replace("line 9", "ours"))
    work.commit()
    work.git("stash", "apply", "-q", ok=False)
    assert work.git("ls-files", "--unmerged")


@state
def detached(work: Work, tmp: Path) -> None:
    filled(work)
    work.git("checkout", "-q", "--detach")


@state
def linked_worktree(work: Work, tmp: Path) -> None:
    main = Work(tmp / "main", tmp)
    filled(main)
    work.top.rmdir()
    main.git("worktree", "add", "-q", "--detach", str(work.top))


@state
def linked_worktree_of_a_bare_repository(work: Work, tmp: Path) -> None:
    main = Work(tmp / "main", tmp)
    filled(main)
    main.git("clone", "-q", "--bare", ".", str(tmp / "bare.git"))
    work.top.rmdir()
    run_git(tmp / "bare.git", "worktree", "add", "-q", str(work.top), "main")


@state
def git_is_a_file(work: Work, tmp: Path) -> None:
    work.git("init", "-q", "--separate-git-dir", str(tmp / "elsewhere"))
    filled(work)
    assert (work.top / ".git").is_file()


@state
def git_is_a_link(work: Work, tmp: Path) -> None:
    filled(work)
    shutil.move(work.top / ".git", tmp / "elsewhere")
    (work.top / ".git").symlink_to(tmp / "elsewhere")


@state
def inside_a_submodule(work: Work, tmp: Path) -> None:
    inner, outer = Work(tmp / "inner", tmp), Work(tmp / "outer", tmp)
    filled(inner)
    filled(outer)
    outer.git("submodule", "--quiet", "add", str(inner.top), "module")
    outer.commit()
    work.top.rmdir()
    work.top.symlink_to(outer.top / "module")


def with_submodule(work: Work, tmp: Path) -> None:
    inner = Work(tmp / "inner", tmp)
    filled(inner)
    filled(work)
    work.git("submodule", "--quiet", "add", str(inner.top), "module")
    work.commit()


@state
def submodule(work: Work, tmp: Path) -> None:
    with_submodule(work, tmp)


@state
def dirty_submodule(work: Work, tmp: Path) -> None:
    with_submodule(work, tmp)
    work.write("module/b.txt", "the user's\n")


@state
def submodule_not_initialised(work: Work, tmp: Path) -> None:
    outer = Work(tmp / "outer", tmp)
    with_submodule(outer, tmp)
    work.git("clone", "-q", str(outer.top), ".")
    assert not list((work.top / "module").iterdir())


@state
def nested_repository(work: Work, tmp: Path) -> None:
    filled(work)
    filled(Work(work.top / "nested", tmp))


@state
def nested_repository_without_commits(work: Work, tmp: Path) -> None:
    filled(work)
    run_git(Work(work.top / "nested", tmp).top, "init", "-q")
    work.write("nested/x", "x\n")


@state
def sparse_cone(work: Work, tmp: Path) -> None:
    filled(work)
    work.git("sparse-checkout", "set", "--cone")
    assert not (work.top / "sub").exists()


@state
def sparse_index(work: Work, tmp: Path) -> None:
    filled(work)
    work.git("sparse-checkout", "set", "--cone", "--sparse-index")
    assert not (work.top / "sub").exists()


@state
def sparse_patterns(work: Work, tmp: Path) -> None:
    filled(work)
    work.git("sparse-checkout", "set", "--no-cone", "/*", "!b.txt")
    assert not (work.top / "b.txt").exists()


@state
def shallow(work: Work, tmp: Path) -> None:
    two_branches(Work(tmp / "full", tmp))
    work.git("clone", "-q", "--depth", "1", f"file://{tmp}/full", ".")


@state
def partial_clone(work: Work, tmp: Path) -> None:
    full = Work(tmp / "full", tmp)
    two_branches(full)
    full.git("config", "uploadpack.allowFilter", "true")
    work.git("clone", "-q", "--filter=blob:none", f"file://{tmp}/full", ".")
    shutil.rmtree(full.top)


@state
def partial_clone_without_its_files(work: Work, tmp: Path) -> None:
    full = Work(tmp / "full", tmp)
    filled(full)
    full.git("config", "uploadpack.allowFilter", "true")
    work.git("clone", "-q", "--filter=blob:none", "--sparse", f"file://{tmp}/full", ".")
    shutil.rmtree(full.top)


@state
def no_checkout(work: Work, tmp: Path) -> None:
    filled(Work(tmp / "full", tmp))
    work.git("clone", "-q", "--no-checkout", str(tmp / "full"), ".")
    work.write("a.txt", LINES)


@state
def borrowed_objects(work: Work, tmp: Path) -> None:
    filled(Work(tmp / "full", tmp))
    work.git("clone", "-q", "--shared", str(tmp / "full"), ".")


@state
def packed(work: Work, tmp: Path) -> None:
    two_branches(work)
    work.git("gc", "-q")
    work.git("multi-pack-index", "write", "--no-progress")


@state
def sha256(work: Work, tmp: Path) -> None:
    filled(work, "--object-format=sha256")


@state
def index_locked(work: Work, tmp: Path) -> None:
    filled(work)
    work.write(".git/index.lock", "")


@state
def index_missing(work: Work, tmp: Path) -> None:
    filled(work)
    (work.top / ".git" / "index").unlink()


@state
def index_split(work: Work, tmp: Path) -> None:
    filled(work)
    work.git("update-index", "--split-index")
    work.write("sub/d.txt", LINES)
    work.git("add", "sub/d.txt")


@state
def index_version_4_with_caches(work: Work, tmp: Path) -> None:
    filled(work)
    work.git("update-index", "--index-version", "4", "--force-untracked-cache")
    work.git("status")


@state
def head_is_broken(work: Work, tmp: Path) -> None:
    filled(work)
    work.write(".git/refs/heads/main", "1" * 40 + "\n")


@state
def ref_is_garbage(work: Work, tmp: Path) -> None:
    filled(work)
    work.write(".git/refs/heads/main", "garbage\n")


@state
def an_object_is_missing(work: Work, tmp: Path) -> None:
    filled(work)
    work.write("sub/lost.txt", "lost\n")
    work.commit()
    lost = work.git("rev-parse", "HEAD:sub/lost.txt").strip()
    (work.top / ".git" / "objects" / lost[:2] / lost[2:]).unlink()


@state
def intent_to_add(work: Work, tmp: Path) -> None:
    work.git("init", "-q")
    work.write("a.txt", LINES)
    work.git("add", "-N", "a.txt")


@state
def assumed_unchanged(work: Work, tmp: Path) -> None:
    filled(work)
    work.git("update-index", "--assume-unchanged", "a.txt", "b.txt")


@state
def skipped_but_there(work: Work, tmp: Path) -> None:
    filled(work)
    work.git("update-index", "--skip-worktree", "a.txt", "b.txt")
    (work.top / "b.txt").unlink()


@state
def staged_by_the_user(work: Work, tmp: Path) -> None:
    filled(work)
    work.write("b.txt", "staged\n")
    work.write("new.txt", "staged\n")
    work.git("add", "-A")
    work.git("rm", "-q", "--cached", "sub/c.txt")
    work.git("stash", "create")


@state
def stashes(work: Work, tmp: Path) -> None:
    filled(work)
    work.write("b.txt", "stashed\n")
    work.git("stash", "-q")


@state
def mode_ignored(work: Work, tmp: Path) -> None:
    filled(work)
    work.git("config", "core.fileMode", "false")
    (work.top / "b.txt").chmod(0o755)


@state
def case_ignored(work: Work, tmp: Path) -> None:
    filled(work)
    work.git("config", "core.ignoreCase", "true")


@state
def case_differs(work: Work, tmp: Path) -> None:
    filled(work)
    work.write("A.TXT", "other\n")
    work.write("SUB/c.txt", "other\n")
    work.commit()


@state
def quoted_paths(work: Work, tmp: Path) -> None:
    filled(work)
    work.git("config", "core.quotePath", "true")
    work.write("日本", "x\n")
    work.write(os.fsdecode(b"bad\xff\n"), "x\n")


@state
def links_are_files(work: Work, tmp: Path) -> None:
    filled(work)
    (work.top / "link").symlink_to("a.txt")
    work.commit()
    work.git("config", "core.symlinks", "false")


@state
def a_pipe_in_a_files_place(work: Work, tmp: Path) -> None:
    filled(work)
    (work.top / "b.txt").unlink()
    os.mkfifo(work.top / "b.txt")
    os.mkfifo(work.top / "untracked-pipe")


@state
def empty_folders(work: Work, tmp: Path) -> None:
    filled(work)
    (work.top / "hollow" / "inner").mkdir(parents=True)


@state
def worktree_elsewhere(work: Work, tmp: Path) -> None:
    work.git("init", "-q", "--separate-git-dir", str(tmp / "elsewhere"))
    filled(work)
    work.git("config", "core.worktree", str(work.top))


ATTRIBUTES = {
    "eol_crlf": "* text eol=crlf",
    "text_auto": "* text=auto",
    "no_text": "* -text",
    "binary": "b.txt binary",
    "ident_and_export": "b.txt ident export-subst export-ignore",
    "encoded": "b.txt text working-tree-encoding=UTF-16LE-BOM",
    "filter": "b.txt filter=upper",
    "filter_fails": "b.txt filter=fails",
    "filter_missing": "b.txt filter=nowhere",
    "macro_and_unknown": "[attr]own -text\nb.txt own whatever=1 merge=union diff=php",
}


def with_attributes(line: str, autocrlf: str) -> State:
    def make(work: Work, tmp: Path) -> None:
        work.git("init", "-q")
        for name in ("upper", "fails"):
            work.git("config", f"filter.{name}.clean", "tr a-z A-Z" if name == "upper" else "exit 3")
            work.git("config", f"filter.{name}.required", "true")
        work.write(".gitattributes", line + "\n")
        work.write("a.txt", LINES)
        work.write("b.txt", b"\xff\xfe" + LINES.encode("utf-16-le") if "UTF-16" in line else LINES)
        work.git("add", "a.txt", ".gitattributes", *(["b.txt"] if "fails" not in line else []))
        work.git("commit", "-qm", "c")
        work.git("config", "core.autocrlf", autocrlf)
        work.write("dos.txt", "a\r\nb\r\n")
        work.write("b.txt", "$Id$\r\nchanged\n")

    return make


STATES |= {f"attributes_{name}": with_attributes(line, "false") for name, line in ATTRIBUTES.items()}
STATES |= {f"autocrlf_{value}": with_attributes("", value) for value in ("true", "input")}


@contextmanager
def untouched(work: Work, tmp: Path) -> Iterator[None]:
    """Every repository below the test's folder, wherever its parts lie, is the same afterwards."""
    top = Path(os.path.realpath(work.top))

    def repositories() -> dict[Path, tuple[int, bytes]]:
        files = tree_of(tmp)
        return {
            path: seen
            for path, seen in files.items()
            if not path.is_relative_to(work.store.parent) and (".git" in path.parts or not path.is_relative_to(top))
        }

    before = repositories()
    assert before
    yield
    assert repositories() == before


def user_edits(work: Work) -> None:
    """What the request must not be blamed for."""
    work.write("a.txt", LINES.replace("line 5", "the user's 5"))
    work.write("untracked.txt", "the user's\n")
    work.write("sub/untracked.txt", "the user's\n")


@pytest.mark.parametrize("name", STATES)
def test_a_state_of_a_repository(name: str, tmp_path: Path) -> None:
    work = Work(tmp_path / "work", tmp_path / "private")
    STATES[name](work, tmp_path)
    user_edits(work)
    with untouched(work, tmp_path):
        start = work.take().snapshot
        assert start.kind == "tree", start
        unchanged = work.diff(start)
        assert (unchanged.files, unchanged.untracked, unchanged.unified) == ([], [], "")
        work.agent_writes("a.txt", LINES.replace("line 5", "the user's 5").replace("line 8", "AGENT"))
        work.agent_writes("untracked.txt", "the user's\nthe agent's\n")
        work.write("sub/untracked.txt", "by a command\n")
        work.write("made.txt", "new\n")
        diff = work.diff(start, "a.txt", "untracked.txt")
    assert [file.path for file in diff.files] == ["a.txt", "sub/untracked.txt", "untracked.txt"]
    assert changed_lines(diff) == [
        "-line 8",
        "+AGENT",
        "-the user's",
        "+by a command",
        "+the agent's",
    ]
    assert diff.untracked == ["made.txt"]


@pytest.mark.parametrize("name", ["plain", "merge", "linked_worktree", "sparse_cone", "nested_repository"])
def test_from_a_folder_of_it(name: str, tmp_path: Path) -> None:
    work = Work(tmp_path / "work", tmp_path / "private")
    STATES[name](work, tmp_path)
    user_edits(work)
    work.cwd = work.top / "sub"
    with untouched(work, tmp_path):
        start = work.take().snapshot
        touched = [work.agent_writes(f"../{name}", "agent\n") for name in ("a.txt", "new.txt")]
        touched.append(work.agent_writes("untracked.txt", "agent\n"))
        diff = work.diff(start, *touched)
    assert [file.path for file in diff.files] == ["a.txt", "sub/untracked.txt"]
    assert diff.untracked == ["new.txt"]
