"""`caldrix run` and the words of the command line."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from pathlib import Path

import pytest

from caldrix.commands.answer import stats_line
from caldrix.commands.arguments import parse
from caldrix.commands.exits import Stop
from caldrix.commands.plain import visible
from caldrix.commands.run import run
from caldrix.commands.table import in_units, status_lines
from caldrix.protocol.messages import Done, MemoryInfo, PoolInfo, PoolStatus, Timing, Usage
from tests.daemon.daemon_pool import BOUND_S
from tests.daemon.fake_engine import FakeLoader

HERE = Path(__file__).parent


@pytest.mark.parametrize("frames", ["cbor", "json"])
def test_one_answer_is_all_of_stdout(capsys: pytest.CaptureFixture[str], frames: str) -> None:
    loader = FakeLoader()
    assert run(parse(["run", "fake", "--frames", frames, "--window", "99", "--stats", "say hallo ü"]), loader) == 0
    out, err = capsys.readouterr()
    assert out.encode("latin-1").decode() == "hallo ü\n"  # the fake engine says bytes
    assert "answer 8 tokens" in err and len(err.splitlines()) == 1
    assert loader.flags[0].window == 99 and loader.members[0].closed.is_set()


def test_a_prompt_from_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["run", "fake"], ["run", "fake", "-"], ["run", "fake", "--stats", "-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"say piped")))
        assert run(parse(words), FakeLoader()) == 0
        assert capsys.readouterr().out == "piped\n"


def test_a_cut_answer_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(parse(["run", "fake", "say hello", "--max-new-tokens", "2"]), FakeLoader()) == 0
    out, err = capsys.readouterr()
    assert out == "he\n" and "cut at 2 tokens" in err


def test_a_cut_json_answer_fails(tmp_path: Path) -> None:
    schema = tmp_path / "s.json"
    schema.write_text("{}")
    with pytest.raises(Stop, match="before its JSON ended") as stop:
        run(parse(["run", "fake", "say hello", "--max-new-tokens", "2", "--json-schema", str(schema)]), FakeLoader())
    assert stop.value.code == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["fake", " "], 64, "empty"),
        (["fake", "x", "--json-schema", "/no/such/file"], 64, "/no/such/file"),
        (["fake", "x", "--json-schema", str(HERE / "fake_pool.py")], 64, "fake_pool.py"),
        (["missing", "x"], 1, "there is no model missing"),
        (["fake", "fail"], 1, "the engine broke"),
    ],
)
def test_what_cannot_be_run(words: list[str], code: int, said: str) -> None:
    with pytest.raises(Stop, match=said) as stop:
        run(parse(["run", *words]), FakeLoader())
    assert stop.value.code == code


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "a", "b", "c"],
        ["run", "a", "--bogus"],
        ["pool", "stop", "--load", "x"],
        ["poll"],
        ["pool", "--idle", "1"],
    ],
)
def test_wrong_words_exit_with_64(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(words)
    assert stop.value.code == 64 and "usage:" in capsys.readouterr().err


async def test_an_interrupt_ends_it_with_130() -> None:
    pipe = asyncio.subprocess.PIPE
    env = os.environ | {"PYTHONPATH": f"{HERE.parent.parent}:{HERE}"}
    words = [str(HERE / "fake_pool.py"), "run", "fake", "long", "--max-new-tokens", "4000"]
    process = await asyncio.create_subprocess_exec(sys.executable, *words, env=env, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(BOUND_S):
        assert process.stdout is not None
        assert await process.stdout.read(1) == b"x"
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert process.returncode == 130 and b"Traceback" not in err


async def test_a_reader_that_went_away_is_no_traceback() -> None:
    pipe = asyncio.subprocess.PIPE
    env = os.environ | {"PYTHONPATH": f"{HERE.parent.parent}:{HERE}"}
    words = [str(HERE / "fake_pool.py"), "run", "fake", "long", "--max-new-tokens", "4000"]
    read, write = os.pipe()
    process = await asyncio.create_subprocess_exec(sys.executable, *words, env=env, stdout=write, stderr=pipe)
    os.close(write)
    os.close(read)
    async with asyncio.timeout(BOUND_S):
        _, err = await process.communicate()
    assert process.returncode == 1 and not err


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain é\n\t😀", "plain é\n\t😀"), ("\x1b[2J\r\x07", "\\x1b[2J\\x0d\\x07"), ("\x9b1m", "\\x9b1m")],
)
def test_control_characters_are_shown(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB"), (1 << 60, "1048576.0 TiB")],
)
def test_sizes(size: int, text: str) -> None:
    assert in_units(size) == text


def test_lines_for_a_person() -> None:
    info = PoolInfo(version="1", pid=7, started_at="now")
    memory = MemoryInfo(limit_bytes=2 << 30, used_bytes=0)
    status = PoolStatus(
        id=1, pool=info, members=[], connections=1, contexts=0, memory=memory, idle_timeout_s=0.0, idle_for_s=0.0
    )
    assert status_lines(status)[1:] == [
        "clients  1 connected, 0 contexts; exits when idle: never",
        "memory   0 B of 2.0 GiB",
        "no member is loaded",
    ]
    usage = Usage(
        prompt_tokens=10, recomputed_from=4, completion_tokens=3, forced_tokens=1, drafted_tokens=0, accepted_tokens=0
    )
    done = Done(id=1, finish="stop", text="x", usage=usage, timing=Timing(queued_ms=0, prefill_ms=3, decode_ms=0))
    line = stats_line(done)
    assert line == "prompt 10 tokens, 6 computed in 3 ms (2000.0 tok/s); answer 3 tokens, 1 forced, in 0 ms; stop"
