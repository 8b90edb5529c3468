"""`caldrix run` and the words of the command line."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from pathlib import Path

import pytest

from caldrix.commands.arguments import parse
from caldrix.commands.exits import Stop
from caldrix.commands.plain import visible
from caldrix.commands.run import run
from caldrix.commands.served import flag_words, holds
from caldrix.commands.table import in_units, status_lines
from caldrix.protocol.messages import MemoryInfo, PoolInfo, PoolStatus
from tests.daemon.daemon_pool import BOUND_S, Served
from tests.daemon.fake_engine import FakeLoader, FakeMember

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


async def test_a_named_pool_answers_with_its_member(pool: Served, capsys: pytest.CaptureFixture[str]) -> None:
    for reference in ("main", "fake"):
        words = ["run", reference, "--socket", str(pool.socket), "say from the pool"]
        assert await asyncio.to_thread(run, parse(words), FakeLoader()) == 0
        assert capsys.readouterr().out == "from the pool\n"
    status = await (await pool.client()).status()
    assert len(pool.loader.members) == 1 and status.contexts == 0


async def test_a_named_pool_loads_what_it_lacks(pool: Served, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "other", "--socket", str(pool.socket), "--window", "77", "say loaded"]
    assert await asyncio.to_thread(run, parse(words), FakeLoader()) == 0
    assert capsys.readouterr().out == "loaded\n" and pool.loader.flags[-1].window == 77
    assert [member.member for member in (await (await pool.client()).status()).members] == ["main", "other"]


def test_a_named_pool_that_is_not_there(folder: Path) -> None:
    with pytest.raises(Stop, match="no pool answers"):
        run(parse(["run", "fake", "--socket", str(folder / "none.sock"), "x"]), FakeLoader())


def test_which_member_holds_a_model() -> None:
    member = FakeMember().status("main").model_copy(update={"model": "/models/a.gguf"})
    assert (
        holds(member, "main") and holds(member, "/models/a.gguf") and holds(member, "/models/../models/a.gguf") is False
    )
    assert not holds(member, "a.gguf") and not holds(member, "other")


def test_serving_flags_as_words() -> None:
    given = parse(["run", "m", "--window", "5", "--context-budget", "1K", "--store-dir", "/x"])
    assert flag_words(given) == ["--window", "5", "--context-budget", "1024", "--store-dir", "/x"]


async def test_a_pipe_gets_the_answer_and_no_escape_byte() -> None:
    pipe = asyncio.subprocess.PIPE
    env = os.environ | {"PYTHONPATH": str(HERE.parent.parent), "TERM": "xterm-256color", "FORCE_COLOR": "1"}
    words = [str(HERE / "fake_pool.py"), "run", "fake", "--stats", "say \x1b[1m plain"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, env=env, stdout=pipe, stderr=pipe, stdin=asyncio.subprocess.DEVNULL
    )
    out, err = await asyncio.wait_for(process.communicate(), BOUND_S)
    assert process.returncode == 0 and out == b"\x1b[1m plain\n" and b"\x1b" not in err
