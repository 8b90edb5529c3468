"""grep, glob and repo_map: pitfalls S01, S03, S05, S08, and that the three see the same files."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from aerix_server.config.bounds import GREP_LINE_CHARS, READ_LINE_CHARS
from aerix_server.tools import grep as grep_tool
from aerix_server.tools.base import ToolError
from aerix_server.tools.files import FileEntry, list_files
from aerix_server.tools.languages import language
from aerix_server.tools.patterns import alternatives, matcher
from aerix_server.tools.repo_map import render


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.py", ["a.py", "src/a.py", "a/b/c.py"], ["a.pyc", "apy"]),
        ("src/*.py", ["src/a.py", "src/b/a.py"], ["a.py", "asrc/a.py"]),
        ("**/*.py", ["a.py", "src/a.py"], ["a.js"]),
        ("src/**/test_*.py", ["src/test_a.py", "src/x/y/test_a.py"], ["test_a.py"]),
        ("*.{js,ts}", ["a.js", "b/c.ts"], ["a.jsx"]),
        ("{a,b{c,d}}.txt", ["a.txt", "bc.txt", "bd.txt"], ["b.txt", "ac.txt"]),
        ("./a?.[ch]", ["ab.c", "ab.h"], ["ab.x", "a.c"]),
        ("a[!b]c", ["axc"], ["abc"]),
        ("{a}", ["{a}"], ["a"]),
        ("a.py", ["a.py"], ["src/a.py"]),
    ],
)
def test_patterns(pattern, matching, other):
    matches = matcher(pattern)
    assert [name for name in matching + other if matches(name)] == matching


def test_a_pattern_never_explodes():
    started = time.monotonic()
    assert not matcher("*a" * 40 + "b")("a" * 4000)
    assert time.monotonic() - started < 1
    with pytest.raises(Exception, match="more than 256 patterns"):
        alternatives("{a,b}" * 12)


async def test_the_git_file_set(repository, git):
    for name in ("tracked.py", "new.py", "build/out.py", "gone.py", "sub/deep/x.py"):
        repository.put(name, "needle\n")
    repository.put(".gitignore", "build/\n")
    git(repository.cwd, "add", "tracked.py", "gone.py", ".gitignore")
    git(repository.cwd, "commit", "-qm", "one")
    (repository.cwd / "gone.py").unlink()
    assert await repository.text("glob", pattern="*.py") == "new.py\nsub/deep/x.py\ntracked.py"
    assert await repository.text("grep", pattern="needle") == (
        "new.py:1:needle\nsub/deep/x.py:1:needle\ntracked.py:1:needle"
    )
    shown = await repository.text("repo_map")
    assert "build" not in shown and "gone.py" not in shown
    assert "  deep/ (1 file, 7 B, Python)\n    x.py  7 B  Python" in shown
    assert await repository.text("glob", pattern="build/*") == (
        "no file to show: the 1 match of build/* is ignored by git"
    )
    assert "the 1 file there is ignored by git" in await repository.text("grep", pattern="needle", path="build")
    assert await repository.text("grep", pattern="needle", path="build/out.py") == "build/out.py:1:needle"


async def test_git_variables_of_a_hook_do_not_mislead(repository, monkeypatch, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=other, check=True)
    repository.put("mine.py")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / "nothing"))
    assert await repository.text("glob", pattern="*.py") == "mine.py"


def test_a_cancel_ends_the_listing_between_two_repositories(repository, git):
    for number in range(3):
        inner = repository.cwd / f"inner{number}"
        inner.mkdir()
        git(inner, "init", "-q")
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 2

    with pytest.raises(ToolError, match="cancelled"):
        list_files(repository.cwd, stop)
    assert len(asked) == 3


async def test_a_repository_inside_another(repository, git):
    inner = repository.put("vendor/lib/a.py", "x").parent
    git(inner, "init", "-q")
    repository.put("vendor/lib/.gitignore", "*.o")
    repository.put("vendor/lib/a.o", "x")
    assert await repository.text("glob", pattern="*.py") == "vendor/lib/a.py"
    assert "vendor/lib/a.o" not in await repository.text("glob", pattern="*")


async def test_links_are_never_followed_into_a_cycle(bench):
    """S05, outside a repository."""
    bench.put("d/x.py", "needle\n")
    (bench.cwd / "d/self").symlink_to(".")
    (bench.cwd / "a").mkdir()
    (bench.cwd / "a/b").symlink_to("../a")
    (bench.cwd / "root").symlink_to("/")
    (bench.cwd / "dangling").symlink_to("nowhere")
    (bench.cwd / "y.py").symlink_to("d/x.py")
    for skipped in (".git", "target", "node_modules"):
        bench.put(f"{skipped}/z.py", "needle\n")
    assert await bench.text("glob", pattern="*") == "d/x.py\ny.py"
    assert await bench.text("grep", pattern="needle") == "d/x.py:1:needle"
    assert "2 files" in await bench.text("repo_map")


async def test_one_huge_line(bench):
    """S01: a window around the match, on a character boundary."""
    bench.put("min.js", "é" * 1_250_000 + "needle" + "é" * 1_250_000)
    text = await bench.text("grep", pattern="needle")
    assert text.startswith("min.js:1:…é") and text.endswith("é… [cut: the line has 5000006 bytes]")
    window = text.removeprefix("min.js:1:").partition(" [cut")[0]
    assert len(window) == 402
    assert abs(window.index("needle") - 200) < 5


async def test_many_huge_lines(bench):
    """S01: two hundred of them stay within what two hundred lines may be, in grep and in read."""
    bench.put("min.js", ("é" * 10_000 + "needle" + "é" * 10_000 + "\n") * 201)
    text = await bench.text("grep", pattern="needle")
    assert text.endswith("[200 shown, more exist]") and text.count("[cut: the line has 40006 bytes]") == 200
    assert len(text) < 200 * (GREP_LINE_CHARS + 60)
    page = await bench.text("read", path="min.js")
    assert page.count("[cut: the line has 40006 bytes]") == 200 and len(page) < 200 * (READ_LINE_CHARS + 60)


async def test_a_line_of_millions_of_matches_is_one_match(bench):
    """S01."""
    bench.put("f.txt", "x" * 5_000_000)
    started = time.monotonic()
    assert (await bench.text("grep", pattern="x")).count("\n") == 0
    assert time.monotonic() - started < 5


async def test_binary_and_other_encodings(bench):
    """S03."""
    bench.put("b", b"\x00\x01needle\n")
    bench.put("image.png", b"\x89PNG\r\n\x1a\n\x00\x00")
    bench.put("late.txt", b"needle\n" + b"x\n" * 50_000 + b"\x00")
    bench.put("wide.txt", "\ufeffneedle wide\n".encode("utf-16-le"))
    bench.put("bad.txt", b"needle \xff tail\n")
    bench.put("mark.txt", b"\xef\xbb\xbfneedle\r\n")
    assert (await bench.text("grep", pattern="^needle")).split("\n") == [
        "bad.txt:1:needle \ufffd tail",
        "mark.txt:1:needle",
        "wide.txt:1:needle wide",
        "[1 file with a match skipped: binary]",
        "[2 files skipped: binary]",
    ]


async def test_files_that_are_too_large_are_named(bench):
    """S08."""
    bench.put("big.log", b"needle\n" + b"x" * (8 * 1024 * 1024))
    assert await bench.text("grep", pattern="needle") == ("no match for needle in 0 files\n[1 file over 8 MiB skipped]")


async def test_honest_ends(bench):
    """S08."""
    bench.put("f.txt", "hit\n" * 201)
    text = await bench.text("grep", pattern="hit")
    assert text.count("f.txt:") == 200 and text.endswith("[200 shown, more exist]")
    assert "more exist" not in await bench.text("grep", pattern="hit", max_matches=201)
    assert await bench.error("grep", pattern="hit", path="nowhere") == "no such path: nowhere"
    assert "unclosed group" in await bench.error("grep", pattern="(a")
    assert await bench.error("grep", pattern="") == "pattern is empty"
    assert await bench.text("grep", pattern="-x") == "no match for -x in 1 file"
    assert "no file matches the glob *.py" in await bench.text("grep", pattern="hit", glob="*.py")
    assert await bench.error("glob", pattern="*", path="nowhere") == "no such path: nowhere"
    assert await bench.text("glob", pattern="*.py") == "no file matches *.py (1 file looked at)"


async def test_a_regex_that_makes_others_hang(bench):
    """S08: bounded time, also for what takes too much memory to compile."""
    bench.put("f.txt", "a" * 40 + "b\n")
    started = time.monotonic()
    assert "no match" in await bench.text("grep", pattern="(a+)+$")
    assert "size limit" in await bench.error("grep", pattern=r"(\w{1000}){1000}")
    assert time.monotonic() - started < 10


async def test_the_time_of_a_search_is_bounded(bench, monkeypatch):
    """S08."""
    bench.put("f.txt", "hit\n")
    monkeypatch.setattr(grep_tool, "GREP_SECONDS", -1.0)
    assert "[stopped after" in await bench.text("grep", pattern="hit")


async def test_a_cancelled_search_ends(bench):
    bench.put("f.txt", "hit\n")
    bench.ctx.cancelled.set()
    for tool, fields in (("grep", {"pattern": "x"}), ("glob", {"pattern": "*"}), ("repo_map", {})):
        assert await bench.error(tool, **fields) == "cancelled"


async def test_the_glob_of_grep(bench):
    for name in ("a.py", "tests/test_a.py", "web/a.js"):
        bench.put(name, "hit\n")
    assert await bench.text("grep", pattern="hit", glob="*.py") == "a.py:1:hit\ntests/test_a.py:1:hit"
    assert await bench.text("grep", pattern="hit", glob="test_*") == "tests/test_a.py:1:hit"
    assert await bench.text("grep", pattern="hit", path="web") == "web/a.js:1:hit"


async def test_unsaved_text_is_what_is_searched(bench):
    path = bench.put("f.txt", "saved\n")
    bench.put("g.txt", "unsaved too\n")
    bench.unsaved[path] = "x\nunsaved\n"
    assert await bench.text("grep", pattern="saved") == "f.txt:2:unsaved\ng.txt:1:unsaved too"
    assert await bench.text("grep", pattern="unsaved", path="f.txt") == "f.txt:2:unsaved"


async def test_many_files_with_long_names(bench):
    """More names than one command line holds."""
    for number in range(1500):
        bench.put(f"{number:04d}{'n' * 200}.txt", "hit\n" if number % 500 == 0 else "miss\n")
    assert (await bench.text("grep", pattern="hit")).count(":1:hit") == 3


async def test_glob_where_to_look(bench):
    bench.put("src/a.py")
    (bench.cwd.parent / "beside.py").write_text("")
    assert await bench.text("glob", pattern="*.py", path="src") == "src/a.py"
    assert await bench.text("glob", pattern=f"{bench.cwd}/src/*.py") == "src/a.py"
    assert await bench.text("glob", pattern="../be*.py") == str(bench.cwd.parent / "beside.py")
    assert await bench.error("glob", pattern="*", path="src/a.py") == "src/a.py is a file, not a directory"
    assert await bench.text("glob", pattern="a.py") == "no file matches a.py itself; by its name alone:\nsrc/a.py"


async def test_glob_says_how_much_it_leaves_out(bench):
    """S08."""
    for number in range(1001):
        bench.put(f"{number:04d}")
    assert (await bench.text("glob", pattern="*")).endswith("0999\n[1000 of 1001 files shown; narrow the pattern]")


async def test_a_deleted_working_directory(bench):
    os.rmdir(bench.cwd)
    for tool, fields in (("grep", {"pattern": "x"}), ("glob", {"pattern": "*"}), ("repo_map", {})):
        assert "no such path" in (told := await bench.error(tool, **fields)) or "does not exist" in told


async def test_the_map_is_made_once(bench):
    assert await bench.text("repo_map") == "[no files]"
    bench.put("a.py", "x = 1\n")
    assert await bench.text("repo_map") == "[no files]"
    bench.ctx.cache.clear()
    assert await bench.text("repo_map") == "1 file, 6 B: Python\na.py  6 B  Python"


@pytest.mark.parametrize("limit", [600, 2000, 12_000])
def test_a_map_of_any_size_fits(limit):
    files = [FileEntry(f"pkg{number % 40}/mod{number % 7}/file{number}.py", 1000) for number in range(5000)]
    flat = [FileEntry(f"file{number:05d}.rs", 2500) for number in range(5000)]
    for entries in (files, flat):
        shown = render(entries, (), limit)
        assert len(shown.encode()) <= limit
        assert shown.startswith("5000 files, ")
    assert "more entries" in render(flat, (), limit)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.py", "Python"), ("x/Makefile", "Make"), ("Dockerfile", "Dockerfile"), ("a.unknown", None), ("LICENSE", None)],
)
def test_languages(name, expected):
    assert language(name) == expected
