"""The request log: what a line holds, and that neither size, crash, a full disk nor a second pool harms it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from caldrix.client.client import PoolClient
from caldrix.daemon.log import Log, open_log, to_line
from caldrix.daemon.logfile import MAX_BYTES, LogFile
from caldrix.daemon.record import kind_of
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Done, Segment
from tests.daemon.daemon_pool import BOUND_S, until

ROOT = Path(__file__).parents[2]


@contextlib.asynccontextmanager
async def toy_pool(socket: Path, script: Path, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The real daemon in a process of its own, over a scripted engine."""
    command = ["-m", "tests.doubles.toy_caldrix", "pool", "--socket", str(socket), "--load", f"{script}=main", *words]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        await until(lambda: socket.exists() or process.returncode is not None, "the pool")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def script(folder: Path, **facts: Any) -> Path:
    path = folder / "script.json"
    path.write_text(json.dumps({"replies": ["a secret reply"], **facts}))
    return path


async def generate(client: PoolClient, text: str = "a secret prompt") -> Done:
    context = (await client.create("main", [Segment(id="u", role="user", text=text)])).context
    frames = [frame async for frame in client.generate(context, 50)]
    assert isinstance(frames[-1], Done)
    return frames[-1]


def lines(path: Path, kind: str | None = None) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    return [line for line in found if kind is None or line.get("type") == kind]


async def stderr_of(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    return (await process.stderr.read()).decode()


async def test_a_line_tells_all_but_the_texts(folder: Path) -> None:
    log = folder / "logs" / "pool.log"
    async with toy_pool(folder / "p.sock", script(folder), "--log", str(log)) as process:
        async with await PoolClient.connect(folder / "p.sock", "someone") as client:
            done = [await generate(client), await generate(client)]
            with pytest.raises(Refused):
                await client.load("/no/such/script", "other")
            await client.stop()
        await process.wait()
    first, second = lines(log, "Generate")
    assert first["client"] == "caldrix" and first["client_id"] == "someone" and first["member"] == "main"
    for line, answer in ((first, done[0]), (second, done[1])):
        for name, value in (answer.usage.model_dump() | answer.timing.model_dump()).items():
            assert line[name] == value, name
        assert line["outcome"] == answer.finish and line["duration_ms"] >= line["decode_ms"]
    assert first["recomputed_from"] == 0 < second["recomputed_from"], "the second prompt resumed"
    (load,) = lines(log, "MemberLoad")
    assert load["outcome"] == "model_not_found" and load["model"] == "/no/such/script" and load["member"] == "other"
    assert "secret" not in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600 and stat.S_IMODE(log.parent.stat().st_mode) == 0o700


async def test_log_text_adds_the_texts(folder: Path) -> None:
    log = folder / "pool.log"
    pool = toy_pool(folder / "p.sock", script(folder), "--log", str(log), "--log-text")
    async with pool, await PoolClient.connect(folder / "p.sock", "me") as client:
        await generate(client)
        await until(lambda: lines(log, "Generate"), "the line")
    (line,) = lines(log, "Generate")
    assert line["prompt"] == [{"role": "user", "text": "a secret prompt"}] and line["output"] == "a secret reply"


async def test_a_cancelled_and_a_refused_generation_name_their_member(folder: Path) -> None:
    log = folder / "pool.log"
    pool = toy_pool(folder / "p.sock", script(folder, pace_s=0.05, window=400), "--log", str(log))
    async with pool, await PoolClient.connect(folder / "p.sock", "me") as client:
        with pytest.raises(Refused):
            await generate(client, "x" * 1000)
        context = (await client.create("main", [Segment(id="u", role="user", text="hi")])).context
        frames = client.generate(context, 50)
        await anext(frames)
        await frames.aclose()
        await until(lambda: len(lines(log, "Generate")) == 2, "both lines")
    refused, cancelled = lines(log, "Generate")
    assert refused["outcome"] == "window_exceeded" and refused["member"] == "main" and refused["prompt_tokens"] > 1000
    assert cancelled["outcome"] == "cancelled" and cancelled["member"] == "main" and "decode_ms" in cancelled


async def test_a_killed_pool_loses_at_most_its_last_line(folder: Path) -> None:
    log = folder / "pool.log"
    pool = toy_pool(folder / "p.sock", script(folder), "--log", str(log))
    async with pool as process, await PoolClient.connect(folder / "p.sock", "me") as client:
        for _ in range(6):
            await generate(client)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    assert log.read_bytes().endswith(b"\n")
    assert len(lines(log, "Generate")) >= 5


@pytest.mark.parametrize(("log", "reason"), [("/dev/full", "No space left"), ("/dev/null/pool.log", "Not a directory")])
async def test_a_log_that_cannot_be_written_stops_nobody(folder: Path, log: str, reason: str) -> None:
    async with toy_pool(folder / "p.sock", script(folder), "--log", log) as process:
        async with await PoolClient.connect(folder / "p.sock", "me") as client:
            for _ in range(3):
                assert (await generate(client)).text == "a secret reply"
            await client.stop()
        assert await asyncio.wait_for(process.wait(), BOUND_S) == 0
        complaints = [line for line in (await stderr_of(process)).splitlines() if "cannot write the log" in line]
    assert len(complaints) == 1 and log in complaints[0] and reason in complaints[0]


async def test_two_pools_put_one_full_log_aside_together(folder: Path) -> None:
    log = folder / "pool.log"
    log.write_bytes(b"x" * (MAX_BYTES - 2000) + b"\n")
    model = script(folder)
    sockets = [folder / "a.sock", folder / "b.sock"]
    async with contextlib.AsyncExitStack() as stack:
        for path in sockets:
            await stack.enter_async_context(toy_pool(path, model, "--log", str(log)))
        clients = [await stack.enter_async_context(await PoolClient.connect(path, path.name)) for path in sockets]
        await asyncio.gather(*(generate_often(client) for client in clients))
        old = folder / "pool.log.1"
        await until(lambda: old.exists() and len(lines(old, "Generate") + lines(log, "Generate")) == 20, "all lines")
    for path in sockets:
        assert len([1 for line in lines(old) + lines(log) if line.get("client_id") == path.name]) == 20
    assert lines(log, "Generate") and MAX_BYTES <= old.stat().st_size < MAX_BYTES + 2000
    assert not (folder / "pool.log.2").exists() and stat.S_IMODE(log.stat().st_mode) == 0o600


async def generate_often(client: PoolClient) -> None:
    for _ in range(10):
        await generate(client)


def write_many(path: Path, name: str) -> None:
    file = LogFile(path, 4000)
    for number in range(250):
        file.write(f"{name} {number}")
    file.close()


def test_many_writers_leave_three_files_of_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "pool.log"
    fresh = multiprocessing.get_context("spawn")
    writers = [fresh.Process(target=write_many, args=(path, f"writer-{index}")) for index in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["pool.log", "pool.log.1", "pool.log.2"]
    seen = [line for file in files for line in file.read_text().splitlines()]
    assert len(set(seen)) == len(seen) == 750 and all(len(line.split()) == 2 for line in seen)
    assert all(file.stat().st_size < 4100 for file in files)
    assert all(file.stat().st_size >= 4000 for file in files[1:])


def test_a_full_log_moves_on_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "pool.log"
    file = LogFile(path, 10)
    for word in ("first line", "second line", "third line", "fourth line"):
        file.write(word)
    file.close()
    names = (path, tmp_path / "pool.log.1", tmp_path / "pool.log.2")
    assert [name.read_text() for name in names] == ["fourth line\n", "third line\n", "second line\n"]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_log_that_was_moved_or_removed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "pool.log"
    file = LogFile(path)
    file.write("one")
    path.rename(tmp_path / "moved")
    file.write("two")
    path.unlink()
    path.parent.rmdir()
    file.write("three")
    file.close()
    assert (tmp_path / "moved").read_text() == "one\n" and path.read_text() == "three\n"


def test_a_line_that_was_cut_is_ended_first_and_the_file_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "pool.log"
    path.write_text('{"cut')
    path.chmod(0o644)
    file = LogFile(path)
    file.write("next")
    file.close()
    assert path.read_text() == '{"cut\nnext\n' and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_was_lost_is_counted_once() -> None:
    written: list[str] = []
    complaints: list[Exception] = []
    broken = [True, True, False, False]

    def write(line: str) -> None:
        if broken.pop(0):
            raise OSError(28, os.strerror(28))
        written.append(line)

    log = Log(write, lambda: None, complaints.append)
    for name in "abcd":
        log.event(name)
    log.close()
    assert [json.loads(line).get("lines_lost") for line in written] == [2, None] and len(complaints) == 1


def test_no_log_file_means_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    log = open_log(None)
    log.event("seen", number=1, nothing=None)
    log.close()
    line = json.loads(capsys.readouterr().err)
    assert line["event"] == "seen" and line["number"] == 1 and "nothing" not in line


@pytest.mark.parametrize(
    ("value", "shown"), [("\ud800", '"\\\\ud800"'), ({1, 2}, '"<set>"'), ("é\n", '"é\\n"'), (b"x", '"<bytes>"')]
)
def test_a_line_is_one_line_whatever_it_holds(value: object, shown: str) -> None:
    assert to_line({"a": value}) == f'{{"a": {shown}}}'


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ({"type": "Generate"}, "Generate"),
        ({"type": "my secret"}, "unknown"),
        ({}, "unknown"),
        ({"type": []}, "unknown"),
    ],
)
def test_a_made_up_type_is_not_repeated(payload: dict[str, Any], kind: str) -> None:
    assert kind_of(payload) == kind
