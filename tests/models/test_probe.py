"""The precheck in a child process: a native crash is a verdict, not the end of the pool."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from caldrix.engine import probe as probing
from caldrix.protocol.errors import Refused

CRASH = "import os, signal; os.kill(os.getpid(), signal.{signal})"


@pytest.fixture
def model_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    return path


def child_that(script_repacked: str, script_plain: str, tmp_path: Path) -> str:
    """An interpreter that stands in for the child: it does one thing with repacked kernels and another without."""
    program = tmp_path / "python"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nif sys.argv[-1] == '1':\n    {script_repacked}\nelse:\n    {script_plain}\n"
    )
    program.chmod(0o755)
    return os.fspath(program)


@pytest.mark.parametrize("name", ["SIGILL", "SIGABRT", "SIGSEGV"])
def test_a_crash_with_repacked_kernels_falls_back_and_says_so(
    name: str, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", child_that(CRASH.format(signal=name), "pass", tmp_path))
    verdict = probing.probe(model_file, 1)
    assert not verdict.repack and name in verdict.notes[0]
    monkeypatch.setattr(sys, "executable", "/nowhere")
    assert probing.probe(model_file, 1) == verdict, "the verdict is remembered: no child is started again"


def test_a_crash_both_ways_is_a_refusal(model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = CRASH.format(signal="SIGILL")
    monkeypatch.setattr(sys, "executable", child_that(crash, crash, tmp_path))
    with pytest.raises(Refused, match="SIGILL") as refused:
        probing.probe(model_file, 1)
    assert refused.value.code == "model_refused"


def test_the_real_child_names_what_is_wrong_with_a_broken_file(model_file: Path) -> None:
    with pytest.raises(Refused, match="cannot load") as refused:
        probing.probe(model_file, 1)
    assert refused.value.code == "model_refused" and "Traceback" not in refused.value.message


def test_signals_are_what_subprocess_reports() -> None:
    done = subprocess.run([sys.executable, "-c", CRASH.format(signal="SIGKILL")], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("template", "code", "said"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", -signal.SIGALRM, ""),
        ("{{ 'x' * 10 ** 12 }}", 1, "MemoryError"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", 0, ""),
        ("{{ nonsense", 0, ""),
    ],
    ids=["endless", "huge", "usual", "broken"],
)
def test_a_template_is_tried_under_limits(template: str, code: int, said: str) -> None:
    """Each in a process of its own, as the precheck does."""
    program = (
        "import sys; from caldrix.engine import probe; probe.TEMPLATE_SECONDS = 2; "
        "probe.try_template(sys.argv[1], '', '')"
    )
    done = subprocess.run([sys.executable, "-c", program, template], check=False, capture_output=True, text=True)
    assert done.returncode == code and said in done.stderr
