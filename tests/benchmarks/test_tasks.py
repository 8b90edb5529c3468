"""The tasks of the trial: each check refuses what is no solution and accepts what is one."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.tasks import checks
from benchmarks.tasks.errors import TrialFailed
from benchmarks.tasks.judge import Verdict, judge
from benchmarks.tasks.task import Task, all_tasks, tasks
from benchmarks.tasks.tree import Entry, changed, damage, endings, picture

TASKS = {task.name: task for task in all_tasks()}
by_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def attempt(task: Task, folder: Path, *, solved: bool) -> Path:
    repo = folder / "repo"
    shutil.copytree(task.repo, repo)
    if solved and task.solution.is_dir():
        shutil.copytree(task.solution, repo, dirs_exist_ok=True)
    return repo


def judged(task: Task, repo: Path, answer: str) -> Verdict:
    return asyncio.run(judge(task, picture(task.repo), repo, answer))


def test_the_set_has_twelve_tasks_of_small_files() -> None:
    assert len(TASKS) == 12
    for task in TASKS.values():
        files = [path for path in task.repo.rglob("*") if path.is_file()]
        assert 5 <= len(files) <= 12, task.name
        assert all(len(path.read_bytes().split(b"\n")) <= 120 for path in files), task.name
        assert {*task.files, *task.may_change} <= picture(task.repo).keys(), task.name


@by_task
def test_the_untouched_repository_is_refused(task: Task, tmp_path: Path) -> None:
    verdict = judged(task, attempt(task, tmp_path, solved=False), "Done, everything works now.")
    assert not verdict.solved and verdict.why and not verdict.files


@by_task
def test_the_solution_is_accepted(task: Task, tmp_path: Path) -> None:
    verdict = judged(task, attempt(task, tmp_path, solved=True), task.answer or "Done.")
    assert verdict == Verdict(True, "", tuple(sorted(task.may_change)) if task.name != "add-flag" else verdict.files)


def _append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def _other_endings(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b"\r\n", b"\n") if b"\r\n" in data else data.replace(b"\n", b"\r\n"))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "was changed, which nobody asked for": _append,
    "line endings of": _other_endings,
    "the mode of": lambda path: path.chmod(path.stat().st_mode ^ 0o100),
    "was removed, which nobody asked for": Path.unlink,
    "was made, which nobody asked for": lambda path: path.with_name("what-i-did.txt").write_text("what I did\n"),
}


@by_task
@pytest.mark.parametrize("says", DAMAGE)
def test_a_solution_that_touches_another_file_is_refused(task: Task, says: str, tmp_path: Path) -> None:
    repo = attempt(task, tmp_path, solved=True)
    names = (name for name in sorted(picture(repo)) if name not in task.may_change)
    untouchable = next(repo / name for name in names if (repo / name).stat().st_size)
    DAMAGE[says](untouchable)
    verdict = judged(task, repo, task.answer)
    assert not verdict.solved and says in verdict.why


@by_task
def test_a_solution_with_other_line_endings_or_permissions_is_refused(task: Task, tmp_path: Path) -> None:
    if task.kind == "answer":
        return
    repo = attempt(task, tmp_path, solved=True)
    path = repo / task.may_change[0]
    right = path.read_bytes()
    _other_endings(path)
    assert "line endings" in judged(task, repo, "").why
    path.write_bytes(right)
    path.chmod(0o755)
    assert "of mode" in judged(task, repo, "").why


def replaced(path: str, old: str, new: str) -> Callable[[Path], None]:
    def apply(repo: Path) -> None:
        data = (repo / path).read_bytes()
        assert old.encode() in data
        (repo / path).write_bytes(data.replace(old.encode(), new.encode()))

    return apply


NEAR_MISSES = [
    ("fix-failing-test", replaced("durations.py", "and not rest", "and rest == 30"), "a test of the repository fails"),
    ("write-function", replaced("stock.py", "count < item", "count <= item"), "a hidden test fails"),
    ("write-function", replaced("stock.py", "return {", "while True: pass\n    return {"), "did not end within"),
    ("add-flag", replaced("tally/cli.py", "if options.ignore_case", "if True"), "test_without_the_flag"),
    ("rename-function", replaced("README.md", "parse_record", "parse_line"), "README.md still says parse_line"),
    ("rename-function", replaced("README.md", "parse_lines", "parse_records"), "says parse_lines no more"),
    ("rename-function", replaced("access/follow.py", "yield parse_record", "yield parse_line"), "hidden test fails"),
    ("change-config", replaced("config/production.json", '"timeout_seconds": 30', '"timeout_seconds": 45'), "hidden"),
    ("add-test", replaced("tests/test_ranges.py", "clamp(11, 0, 10), 10", "clamp(5, 0, 10), 5"), "no upper end"),
    ("add-test", replaced("tests/test_ranges.py", "overlap((1, 3), (3, 5))", "True"), "overlap without ends"),
    ("crlf-off-by-one", replaced("paging.py", "(len(items) + size - 1) // size", "len(items) // size + 1"), "fails"),
    ("update-docs", replaced("README.md", "`8090`", "`8080`"), "does not name its default `8090`"),
    ("update-docs", replaced("README.md", "| `--read-only` | off | refuse uploads |\n", ""), "no row for --read-only"),
    ("update-docs", replaced("README.md", "Public domain.\n", ""), "lost the line 'Public domain.'"),
    ("remove-dead-code", replaced("table.py", "def render_html", "def _pad():\n    pass\n\n\ndef render_html"), "_pad"),
    ("remove-dead-code", replaced("table.py", "    return [cell.ljust", "    return [cell.rjust"), "fails"),
    ("remove-dead-code", replaced("table.py", "import html\n", "import html\nimport os\n"), "was changed"),
    (
        "handle-error",
        replaced("rates.py", "def format", "def other"),
        "cannot import name 'format_percent'",
    ),
    ("handle-error", replaced("rates.py", "0 <= number <= 100", "0 < number < 100"), "a hidden test fails"),
    ("handle-error", replaced("rates.py", "percent out of range: {number}", "bad"), "a hidden test fails"),
]


@pytest.mark.parametrize(("name", "spoil", "says"), NEAR_MISSES)
def test_a_near_miss_is_refused(
    name: str, spoil: Callable[[Path], None], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if says == "did not end within":
        monkeypatch.setattr("benchmarks.tasks.hidden.TEST_SECONDS", 5.0)
    repo = attempt(TASKS[name], tmp_path, solved=True)
    spoil(repo)
    verdict = judged(TASKS[name], repo, "Done.")
    assert not verdict.solved and says in verdict.why


@pytest.mark.parametrize(
    ("check", "answer", "says"),
    [
        (checks.located, "conf/network.ini, [download], max_attempts = 4", None),
        (checks.located, "In mirror/settings.py.", "does not name conf/network.ini"),
        (checks.located, "In conf/network.ini: retries", "does not name the key"),
        (checks.located, "max_attempts in conf/upload.ini or conf/network.ini", "also names conf/upload.ini"),
        (checks.explained, "test_year_1900: is_leap_year does not know that 1900 % 100 == 0", None),
        (checks.explained, "test_year_1900: is_leap_year misses the rule for centuries", None),
        (checks.explained, "test_year_1900 fails, is_leap_year is wrong about 1900", "rule for full centuries"),
        (checks.explained, "is_leap_year misses % 100", "does not name test_year_1900"),
        (checks.explained, "test_year_1900 fails since 1900 % 100 == 0", "does not name is_leap_year"),
    ],
)
def test_an_answer_names_what_was_asked(check: checks.Check, answer: str, says: str | None, tmp_path: Path) -> None:
    found = check(tmp_path, tmp_path, answer)
    assert found == says if says is None else says in str(found)


def test_a_table_that_names_no_python_is_a_sentence(tmp_path: Path) -> None:
    repo = attempt(TASKS["remove-dead-code"], tmp_path, solved=True)
    (repo / "table.py").write_text("def (:\n")
    assert "no Python any more" in str(checks.removed(TASKS["remove-dead-code"].repo, repo, ""))


@pytest.mark.parametrize(
    ("data", "says"),
    [(b"", "none"), (b"a", "none"), (b"a\n", "LF"), (b"a\r\n", "CRLF"), (b"a\r\nb\n", "mixed"), (b"a\rb", "LF")],
)
def test_line_endings(data: bytes, says: str) -> None:
    assert endings(data) == says


def test_junk_is_no_change_and_a_link_is_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a = 1\n")
    before = picture(tmp_path)
    for name in ("__pycache__/a.pyc", ".git/index", ".pytest_cache/x", ".aider.tags.cache.v4/cache.db"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x")
    assert changed(before, picture(tmp_path)) == []
    (tmp_path / "link").symlink_to("nowhere")
    after = picture(tmp_path)
    assert changed(before, after) == ["link"]
    assert (after["link"].kind, after["link"].data) == ("link", b"nowhere")
    (tmp_path / "a.py").unlink()
    (tmp_path / "a.py").symlink_to("b.py")
    assert "is a file of mode" in str(damage(before, picture(tmp_path), {"a.py", "link"}))


def test_a_file_that_may_change_may_also_be_new_or_gone() -> None:
    entry = Entry("file", 0o644, b"x\n")
    assert damage({"a": entry}, {"b": entry}, {"a", "b"}) is None


def test_tasks_are_chosen_by_name() -> None:
    assert [task.name for task in tasks(["write-function", "add-flag"])] == ["add-flag", "write-function"]
    assert len(tasks([])) == 12
    with pytest.raises(TrialFailed, match="no such task: make-coffee; there are add-flag, "):
        tasks(["make-coffee", "add-flag"])
