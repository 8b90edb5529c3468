"""Everything real from `aerix` to the engine thread, but for the model: its replies are a script."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).parents[2]
BOUND_S = 100.0


@dataclass
class Home:
    """A user's folders, with a pool whose model follows `script`; and the commands, run as that user would."""

    root: Path
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        return self.root / "p.sock"

    @property
    def env(self) -> dict[str, str]:
        folders = {f"XDG_{name}_HOME": str(self.root / name.lower()) for name in ("CONFIG", "DATA", "STATE", "CACHE")}
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("AERIX_", "GIT_"))}
        return {**kept, **folders, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}", "NO_COLOR": "1", **self.extra}

    def configure(self, script: dict[str, Any] | None, settings: str = "") -> None:
        """`script` for the toy pool; None: the real pool with the embedded model."""
        command = [sys.executable, "-m", "caldrix" if script is None else "tests.doubles.toy_caldrix"]
        model = "smollm2-instruct"
        if script is not None:
            (self.root / "script.json").write_text(json.dumps(script))
            model = str(self.root / "script.json")
        config = self.root / "config" / "aerix" / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        quoted = {"model": model, "socket": str(self.socket), "caldrix": shlex.join(command)}
        text = "main.model = {model}\npool.socket = {socket}\npool.caldrix = {caldrix}\n"
        config.write_text(text.format(**{key: json.dumps(value) for key, value in quoted.items()}) + settings)

    def aerix(self, cwd: Path, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
        more.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(
            [sys.executable, "-m", "aerix_cli", *args],
            cwd=cwd,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
            **more,
        )

    def result(self, cwd: Path, *args: str) -> dict[str, Any]:
        """The one JSON object of a headless run."""
        done = self.aerix(cwd, *args, "--output-format", "json")
        assert done.stdout, done.stderr
        value: dict[str, Any] = json.loads(done.stdout)
        return value

    def log(self, session: str) -> list[dict[str, Any]]:
        (path,) = (self.root / "data" / "aerix" / "sessions").glob(f"*/{session}.jsonl")
        return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]

    def pool_process(self) -> psutil.Process | None:
        """The pool on this home's socket."""
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if "pool" in words and str(self.socket) in words:
                return process
        return None

    def stop(self) -> None:
        if (process := self.pool_process()) is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except psutil.TimeoutExpired:
                process.kill()


@pytest.fixture
def home() -> Iterator[Home]:
    root = Path(tempfile.mkdtemp(prefix="ax", dir="/tmp"))  # short: a socket path has a limit
    own = Home(root)
    yield own
    own.stop()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A small git repository with one commit."""
    root = tmp_path / "repo"
    (root / "src").mkdir(parents=True)
    (root / "src" / "app.py").write_text("def add(a, b):\n    return a - b\n")
    (root / "README.md").write_text("# Calculator\n\nAdds two numbers.\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(root)]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        subprocess.run([*git, *words], check=True)
    return root


def turn(*calls: tuple[str, dict[str, Any]], thought: str = "next") -> str:
    """A turn as the model writes it: `, ` and `: ` between items."""
    return json.dumps({"thought": thought, "calls": [{"tool": name, "input": given} for name, given in calls]})


def final(text: str) -> str:
    return json.dumps({"thought": "done", "final": text})
