"""Where sessions lie, which project they belong to, and the index beside them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from aerix_server.protocol.messages import Attachment
from aerix_server.session.attachments import with_attachments
from aerix_server.session.folders import SessionFiles, data_home, find_session, new_id, private_folder
from aerix_server.session.index import NAME, refresh_index
from aerix_server.session.instructions import FILE_BYTES, read_instructions
from aerix_server.session.log import LogWriter
from aerix_server.session.project import project_key, project_of, remote_name
from aerix_server.session.summary import title_of


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://user:token@GitHub.com/Owner/Repo.git", "github.com/Owner/Repo"),
        ("https://host.example/a/b/?private_token=x#y", "host.example/a/b"),
        ("ssh://git@host.example:2222/a/b.git", "host.example/a/b"),
        ("git@host.example:a/b.git", "host.example/a/b"),
        ("host.example:/srv/a.git/", "host.example/srv/a"),
        ("git://[::1]/a", "::1/a"),
        ("file:///srv/git/a.git", "/srv/git/a"),
        ("/srv/git/a.git", "/srv/git/a"),
        ("../sibling.git", "/top/sibling"),
        ("C:a", "c/a"),
        ("https://", None),
        ("", None),
        ("http://[bad", None),
    ],
)
def test_a_remotes_name_has_no_credentials(url: str, name: str | None) -> None:
    assert remote_name(url, Path("/top/repo")) == name


@pytest.mark.parametrize("name", ["github.com/a/b", "/", "..", "/srv/ü/日本", "x" * 500, "bad\udcff", "a\nb", "-rf"])
def test_a_key_is_safe_as_a_file_name(name: str) -> None:
    key = project_key(name)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", key) and len(key) <= 91
    assert key == project_key(name) != project_key(name + "x")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def test_the_project_of_a_folder(tmp_path: Path) -> None:
    assert project_of(tmp_path).name == str(tmp_path)
    repo, below = tmp_path / "repo", tmp_path / "repo" / "a" / "b"
    below.mkdir(parents=True)
    git(repo, "init", "-q")
    assert project_of(below).name == str(repo) == project_of(repo).name
    git(repo, "remote", "add", "backup", "https://b.example/x.git")
    assert project_of(below).name == "b.example/x"
    git(repo, "remote", "add", "origin", "git@o.example:x/y.git")
    project = project_of(below)
    assert project.name == "o.example/x/y" and project.key.startswith("o.example-x-y-")


def test_the_data_home() -> None:
    assert data_home({"XDG_DATA_HOME": "/d", "HOME": "/h"}) == Path("/d/aerix")
    assert data_home({"XDG_DATA_HOME": "relative", "HOME": "/h"}) == Path("/h/.local/share/aerix")


def test_ids_sort_by_time_and_no_id_leaves_the_folder(tmp_path: Path) -> None:
    first = new_id()
    assert re.fullmatch(r"[0-9a-z]{26}", first)
    (tmp_path / "sessions" / "p").mkdir(parents=True)
    (tmp_path / "secret.jsonl").touch()
    for bad in ("../../secret", "../secret", "*", "", "a/b", "x\0", "." * 3):
        assert find_session(tmp_path / "sessions", bad) is None
    (tmp_path / "sessions" / "p" / f"{first}.jsonl").touch()
    assert find_session(tmp_path / "sessions", first) == SessionFiles(tmp_path / "sessions" / "p", first)


def start(id_: str) -> dict[str, object]:
    return {"type": "session.start", "id": id_, "cwd": "/c", "project": "p", "model": "m", "profile": None}


def log(folder: Path, id_: str, prompt: str = "do it") -> Path:
    path = folder / f"{id_}.jsonl"
    writer = LogWriter(path)
    writer.append(start(id_))
    writer.append({"type": "request.start", "request": "r1", "prompt": prompt})
    writer.close()
    return path


def titles(folder: Path) -> dict[str, str]:
    return {session.id: session.title for session in refresh_index(folder)}


def test_the_index_is_made_from_the_logs(tmp_path: Path) -> None:
    log(tmp_path, "s1", "\n\n  first   line \nsecond")
    log(tmp_path, "s2")
    (tmp_path / "s1.claude.jsonl").write_text("{}\n")
    (tmp_path / "s3.jsonl").write_text("not an event\n")
    assert titles(tmp_path) == {"s1": "first line", "s2": "do it"}
    index = json.loads((tmp_path / NAME).read_bytes())
    assert [item["session"]["id"] for item in index["sessions"]] == ["s1", "s2"]
    (session, _) = refresh_index(tmp_path)
    assert (session.cwd, session.project, session.requests, session.model, session.state) == ("/c", "p", 1, "m", "idle")
    assert session.created <= session.updated


@pytest.mark.parametrize("damage", ["missing", "garbage", "old version", "other shape", "deep"])
def test_an_index_that_is_no_good_is_made_again(tmp_path: Path, damage: str) -> None:
    log(tmp_path, "s1")
    expected = titles(tmp_path)
    index = tmp_path / NAME
    good = index.read_text()
    damaged = {
        "garbage": "\0{",
        "old version": '{"v": 0}',
        "other shape": '{"v": 1, "sessions": [7]}',
        "deep": "[" * 99999,
    }
    if damage == "missing":
        index.unlink()
    else:
        index.write_text(damaged[damage])
    assert titles(tmp_path) == expected
    assert index.read_text() == good


def test_a_stale_index_follows_the_logs(tmp_path: Path) -> None:
    log(tmp_path, "s1")
    gone = log(tmp_path, "s2")
    assert set(titles(tmp_path)) == {"s1", "s2"}
    gone.unlink()
    writer = LogWriter(tmp_path / "s1.jsonl")
    writer.append({"type": "request.start", "request": "r2", "prompt": "more"})
    writer.close()
    (session,) = refresh_index(tmp_path)
    assert (session.id, session.requests) == ("s1", 2)


def test_an_unchanged_log_is_not_read_again(tmp_path: Path) -> None:
    path = log(tmp_path, "s1")
    titles(tmp_path)
    status = path.stat()
    path.write_bytes(b"x" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert titles(tmp_path) == {"s1": "do it"}


def test_folders_are_the_owners_alone(tmp_path: Path) -> None:
    made = private_folder(tmp_path / "a" / "b")
    assert [folder.stat().st_mode & 0o777 for folder in (made, made.parent)] == [0o700, 0o700]


@pytest.mark.parametrize(
    ("prompt", "title"), [("a\nb", "a"), ("\n \n b\t c ", "b c"), ("x" * 90, "x" * 79 + "…"), ("y" * 80, "y" * 80)]
)
def test_titles(prompt: str, title: str) -> None:
    assert title_of(prompt) == title


def test_attachments_are_told_to_the_model() -> None:
    span = {"start": {"line": 2, "character": 0}, "end": {"line": 5, "character": 0}}
    point = {"start": {"line": 2, "character": 1}, "end": {"line": 2, "character": 4}}
    items = [
        Attachment(uri="file:///a%20b.py", range=span),
        Attachment(uri="file:///c.py", range=point),
        Attachment(uri="untitled:1"),
        Attachment(uri="file:///d.py", range={"start": 3}),
    ]
    assert with_attachments("p", items).split("\n") == [
        "p",
        "",
        "Attached:",
        "- /a b.py (lines 3-5)",
        "- /c.py (line 3)",
        "- untitled:1",
        "- /d.py",
    ]
    assert with_attachments("p", []) == "p"


def test_instruction_files(tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    assert read_instructions(tmp_path, below).text == ""
    (tmp_path / "AGENTS.md").write_bytes(b"\xef\xbb\xbftop rules\r\n")
    (tmp_path / "CLAUDE.md").symlink_to("AGENTS.md")
    (below / "CLAUDE.md").write_text("below rules\n")
    (below / "AGENTS.md").mkdir()
    read = read_instructions(tmp_path, below)
    assert read.text == f"From {tmp_path}/AGENTS.md:\n\ntop rules\n\nFrom {below}/CLAUDE.md:\n\nbelow rules"
    assert read.notices == ()
    (below / "CLAUDE.md").write_bytes("日".encode() * FILE_BYTES)
    read = read_instructions(None, below)
    assert len(read.notices) == 1 and "longer than" in read.notices[0] and "�" not in read.text
    (below / "CLAUDE.md").write_bytes(b"caf\xe9")
    assert "not all UTF-8" in read_instructions(None, below).notices[0]
