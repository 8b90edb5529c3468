"""Words → what to do, and the rules of stdin."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from aerix_cli.options import PoolStatus, Print, UsageError, parse


def a_print(**more: Any) -> Print:
    base: dict[str, Any] = {
        "prompt": "x",
        "format": "text",
        "schema": None,
        "cwd": os.getcwd(),
        "model": None,
        "max_turns": None,
        "route": None,
        "quiet": False,
        "color": "auto",
    }
    return Print(**base | more)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["-p", "x"], a_print()),
        (["x", "-p"], a_print()),
        (["--print", "x", "--output-format", "json"], a_print(format="json")),
        (["-p", "-"], a_print(prompt="-")),
        (["-p"], a_print(prompt=None)),
        (["-p", "--", "-x"], a_print(prompt="-x")),
        (["-p", "- a list"], a_print(prompt="- a list")),
        (["-p", "x", "-C", "/"], a_print(cwd="/")),
        (["-p", "x", "--max-turns", "3", "--route", "edit"], a_print(max_turns=3, route="edit")),
        (["-p", "x", "--quiet", "--in-place", "--standalone", "--color", "never"], a_print(quiet=True, color="never")),
        (["-p", "x", "--model", "hf:a/b:Q4"], a_print(model="hf:a/b:Q4")),
        (["-p", "x", "--model", "/m/x.gguf"], a_print(model="/m/x.gguf")),
        (["-p", "x", "--model", "x.gguf"], a_print(model=str(Path.cwd() / "x.gguf"))),
        (["pool", "status"], PoolStatus(json=False)),
        (["pool", "status", "--json"], PoolStatus(json=True)),
        (["-p", "pool"], a_print(prompt="pool")),
    ],
)
def test_words(words: list[str], command: Any) -> None:
    assert parse(words) == command


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "interactive screen"),
        (["do it"], "interactive screen"),
        (["--nope"], "--nope"),
        (["-p", "x", "y"], "y"),
        (["-p", "x", "--output-format", "xml"], "xml"),
        (["-p", "x", "--max-turns", "0"], "at least 1"),
        (["-p", "x", "--max-turns", "-1"], "at least 1"),
        (["-p", "x", "--max-turns", "1.5"], "at least 1"),
        (["-p", "x", "--max-turns", "²"], "at least 1"),
        (["-p", "x", "--max-turns"], "--max-turns"),
        (["-p", "x", "--route", "up"], "up"),
        (["-p", "x", "--color", "blue"], "blue"),
        (["-p", "x", "--model", " "], "--model"),
        (["-p", "x", "--out", "json"], "--out"),
        (["-p", "x", "-C", "/no/such/dir"], "/no/such/dir"),
        (["-p", "x", "-C", "/dev/null"], "/dev/null"),
        (["-p", "x", "--no-autostart"], "--no-autostart"),
        (["pool"], "status"),
        (["pool", "load"], "load"),
    ],
)
def test_wrong_usage_is_named(words: list[str], named: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(words)
    assert named in str(error.value)


@pytest.mark.parametrize(
    ("content", "named"), [(None, "No such file"), (b"{", "not JSON"), (b"[]", "object"), (b"\xff", "not JSON")]
)
def test_a_schema_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, named: str) -> None:
    path = tmp_path / "schema.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        parse(["-p", "x", "--output-schema", str(path)])
    assert str(path) in str(error.value)
    assert named in str(error.value)


def test_a_schema_file_is_read(tmp_path: Path) -> None:
    schema = {"type": "object", "description": "é"}
    (tmp_path / "s").write_text(json.dumps(schema))
    command = parse(["-p", "x", "--output-schema", str(tmp_path / "s")])
    assert isinstance(command, Print)
    assert command.schema == schema


def test_help_lists_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leave:
        parse(["--help"])
    text = capsys.readouterr().out
    assert leave.value.code == 0
    assert all(f"\n  {code} " in text for code in (0, 1, 2, 3, 4, 64, 130, 141))
