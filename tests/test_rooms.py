"""The import contracts of pyproject.toml: no room imports a room above it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache", "--no-logo"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def contracts() -> list[dict[str, Any]]:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    found: list[dict[str, Any]] = tools["importlinter"]["contracts"]
    return found


def test_every_contract_is_kept() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(contracts())} kept, 0 broken" in done.stdout, done.stdout


def test_the_cli_is_kept_from_every_room_but_the_protocol() -> None:
    rooms = {f"aerix_server.{path.parent.name}" for path in (ROOT / "aerix_server").glob("*/__init__.py")}
    (contract,) = [contract for contract in contracts() if contract.get("source_modules") == ["aerix_cli"]]
    assert set(contract["forbidden_modules"]) == rooms - {"aerix_server.protocol"} | {"caldrix"}


@pytest.mark.parametrize(
    ("room", "line", "contract"),
    [
        ("aerix_server/config/settings.py", "import aerix_server.session", "aerix_server looks down only"),
        ("aerix_server/protocol/methods.py", "import caldrix.engine", "the engine stays behind the socket"),
        ("aerix_server/runtime/turn.py", "import caldrix.client", "only pool/ speaks to caldrix"),
        ("caldrix/protocol/frames.py", "import caldrix.models", "caldrix looks down only"),
    ],
)
def test_a_breach_is_named(tmp_path: Path, room: str, line: str, contract: str) -> None:
    copy_rooms(tmp_path)
    with (tmp_path / room).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    done = lint_imports(tmp_path)
    assert done.returncode != 0
    assert f"{contract} BROKEN" in done.stdout, done.stdout


def copy_rooms(target: Path) -> None:
    """The Python files and the contracts alone, so that a breach can be planted without touching the tree."""
    for package, place in (("aerix_server", ROOT), ("caldrix", ROOT), ("aerix_cli", ROOT / "cli")):
        for source in (place / package).rglob("*.py"):
            copied = target / source.relative_to(place)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(source.read_bytes())
    (target / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
