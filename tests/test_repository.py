"""The repository itself: what no file may hold, versions that agree, pages that are fresh."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import aerix_server
import caldrix

ROOT = Path(__file__).parents[1]

# Written in pieces, so that this file does not hold what it looks for.
REGISTRIES = ("py" + "pi.org", "python" + "hosted.org", "npm" + "js.", "yarn" + "pkg.com", "crates" + ".io")
FORBIDDEN = {
    "a package registry's host": re.compile("|".join(re.escape(host) for host in REGISTRIES), re.IGNORECASE),
    "a path of one machine": re.compile(r"(?<![\w.~])/(?:" + "root|work|farm" + r")/|(?<![\w.~])/(?:home|Users)/\w"),
}
FORBIDDEN_IN_TESTS = {
    "a wait for a time": re.compile(
        r"\btime\.sleep\(|from time impo[r]t[^\n]*\bsleep\b|\b(?:asyncio|anyio)\.sleep\((?:0?\.[1-9]|[1-9])"
    ),
}


def files() -> list[Path]:
    """What the repository holds, and what it would hold after an `add` of everything."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [
        ROOT / name.decode()
        for name in sorted(set(listed.stdout.split(b"\0")))
        if name and (ROOT / name.decode()).is_file()
    ]


def found(patterns: dict[str, re.Pattern[str]], paths: list[Path]) -> list[str]:
    places = []
    for path in paths:
        lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")
        for what, pattern in patterns.items():
            places += [
                f"{path.relative_to(ROOT)}:{n}: {what}: {x}" for n, x in enumerate(lines, 1) if pattern.search(x)
            ]
    return places


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    paths = files()
    assert len(paths) > 50
    assert found(FORBIDDEN, paths) == []


def test_no_test_waits_for_a_time() -> None:
    paths = [path for path in files() if path.is_relative_to(ROOT / "tests")]
    assert found(FORBIDDEN_IN_TESTS, paths) == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("index = https://" + "py" + "pi.org/simple", "a package registry's host"),
        ("open('/" + "root/x')", "a path of one machine"),
        ("see /" + "home/me/x", "a path of one machine"),
        ("time" + ".sleep(0)", "a wait for a time"),
        ("await asyncio" + ".sleep(0.5)", "a wait for a time"),
    ],
)
def test_the_patterns_find_what_they_stand_for(line: str, what: str) -> None:
    assert (FORBIDDEN | FORBIDDEN_IN_TESTS)[what].search(line)


@pytest.mark.parametrize(
    "line", ["~/" + "root/x", "a/" + "work/b", "../home/x", "await asyncio" + ".sleep(0)", "monotonic()"]
)
def test_the_patterns_leave_alone_what_is_fine(line: str) -> None:
    assert not any(pattern.search(line) for pattern in (FORBIDDEN | FORBIDDEN_IN_TESTS).values())


def project() -> dict[str, object]:
    loaded: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return loaded


def test_versions_agree() -> None:
    version = project()["version"]
    assert (aerix_server.__version__, caldrix.__version__) == (version, version)


def test_the_changelog_begins_with_what_is_not_released() -> None:
    headings = re.findall(r"^## \[?([^\]\n]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"


def test_the_settings_page_is_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"])
def test_every_path_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    spans = re.findall(r"`((?:aerix_server|caldrix|cli|tests|docs|scripts)/[\w./-]*)`", text)
    missing = [name for name in (*links, *spans) if not (ROOT / name).exists()]
    assert missing == []


@pytest.mark.parametrize("name", ["run", ".ci/run"])
def test_the_scripts_can_be_started(name: str) -> None:
    assert (ROOT / name).stat().st_mode & 0o111 == 0o111
    subprocess.run(["bash", "-n", str(ROOT / name)], check=True, timeout=10)
