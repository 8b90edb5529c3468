"""`caldrix models`: its table at every width, and as JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from caldrix.commands.arguments import parse
from caldrix.commands.models import as_json, remarks, run_models, table
from caldrix.models.catalogue import CATALOGUE
from caldrix.models.inventory import inventory
from tests.doubles.model_files import write_gguf

GIB = 1 << 30


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "caldrix/models"


def drawn(columns: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=columns, color_system=None)
    console.print(table(inventory(16 * GIB), console.width))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("columns", [40, 60, 72, 80, 100, 120, 200])
def test_the_table_fits_its_columns(columns: int) -> None:
    lines = drawn(columns)
    assert max(map(len, lines)) <= columns
    heads = lines[0].split()
    assert heads[:4] == ["model", "size", "here", "fits"]
    assert ("licence" in heads) == (columns >= 72) and ("good" in heads) == (columns >= 100)
    assert sum(line.rstrip().endswith(("yes", "no", "best")) for line in drawn(60)) == len(CATALOGUE)


def test_names_are_whole_where_there_is_room() -> None:
    assert all(any(line.startswith(name) for line in drawn(60)) for name in CATALOGUE)


def test_a_pipe_gets_no_escapes_and_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_models(parse(["models"])) == 0
    out, err = capsys.readouterr()
    assert err == "" and "\x1b" not in out
    lines = out.splitlines()
    assert all(any(line.startswith(f"{name} ") for line in lines) for name in CATALOGUE)
    assert lines[-1].startswith(("best: ", "no model"))


def test_what_lies_there_is_shown(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cache / "hf/org/Repo").mkdir(parents=True)
    write_gguf(cache / "hf/org/Repo/x-Q8_0.gguf")
    write_gguf(cache / "odd\x1b[31m.gguf")
    write_gguf(cache / "qwen2.5-coder-7b.gguf")
    assert run_models(parse(["models"])) == 0
    out = capsys.readouterr().out
    assert "hf:org/Repo/x-Q8_0.gguf" in out and "\x1b" not in out
    seven = next(line for line in out.splitlines() if line.startswith("qwen2.5-coder-7b"))
    assert seven.split()[3] == "yes"


def test_as_json(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.mkdir(parents=True)
    write_gguf(cache / "qwen2.5-coder-7b.gguf")
    assert run_models(parse(["models", "--json"])) == 0
    told = json.loads(capsys.readouterr().out)
    seven = next(row for row in told["models"] if row["reference"] == "qwen2.5-coder-7b")
    assert seven["path"] == str(cache / "qwen2.5-coder-7b.gguf") and seven["size"] == 4_683_073_536
    assert seven["fits"] in (True, False) and told["memory_limit_bytes"] > 0
    assert sum(row["best"] for row in told["models"]) <= 1
    assert as_json(inventory(GIB), GIB)["memory_limit_bytes"] == GIB


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (64 * GIB, "best: qwen3.6-35b-a3b, `caldrix pull qwen3.6-35b-a3b` fetches it"),
        (12 * GIB, "best: qwen2.5-coder-7b, `caldrix pull"),
        (GIB // 2, "no model of the catalogue fits this machine"),
    ],
)
def test_the_best_that_fits_is_named(limit: int, said: str) -> None:
    assert remarks(inventory(limit), limit)[-1].startswith(said)
