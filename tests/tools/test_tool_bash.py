"""bash and background jobs: pitfalls B01 to B06 with real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import tracemalloc
from collections.abc import Callable

import psutil
import pytest

from aerix_server.config.bounds import BASH_CAPTURE_BYTES
from aerix_server.tools.base import ToolError
from aerix_server.tools.capture import Capture, join
from tests.tools.conftest import Bench

LEFT = "[processes that it started are still running; they are ended with the agent]"


async def until(state: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not state():
        assert time.monotonic() < deadline, "the state never came"
        await asyncio.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("command", "text"),
    [
        pytest.param("echo o; echo e >&2; echo o2", "o\no2\ne\n[exit 0]", id="B06 order"),
        pytest.param("printf x", "x\n[exit 0]", id="no newline"),
        pytest.param("true", "[exit 0]", id="no output"),
        pytest.param("exit 3", "[exit 3]", id="status"),
        pytest.param("exit 256", "[exit 0]", id="B06 256"),
        pytest.param("kill -9 $$", "[signal 9]", id="B06 signal"),
        pytest.param("false | true", "[exit 0]", id="B06 pipe"),
        pytest.param("nosuchcommand_ 2>/dev/null", "[exit 127]", id="unknown command"),
        pytest.param("cat; echo end", "end\n[exit 0]", id="B02 cat"),
        pytest.param("read x; echo [$x]", "[]\n[exit 0]", id="B02 read"),
        pytest.param("python3 -c 'input()' 2>/dev/null; echo $?", "1\n[exit 0]", id="B02 input()"),
        pytest.param("sh -c 'cat; sh -c cat' | cat; echo end", "end\n[exit 0]", id="B02 children"),
        pytest.param("(cat; echo end) & wait", "end\n[exit 0]", id="B02 in the background of a shell"),
        pytest.param("readlink /proc/self/fd/0", "/dev/null\n[exit 0]", id="B02 what it is"),
        pytest.param("exec 1>&- 2>&-; exit 4", "[exit 4]", id="B06 closed pipes"),
        pytest.param("kill -TERM $$", "[signal 15]", id="B06 other signal"),
        pytest.param("true | false", "[exit 1]", id="B06 pipe's last"),
        pytest.param("printf 'a\\r\\nb'", "a\r\nb\n[exit 0]", id="B06 CRLF kept"),
        pytest.param(r"printf 'a\377b\000c'", "a\\xffb\\x00c\n[exit 0]", id="bytes"),
        pytest.param("trap 'exit 7' TERM; kill -TERM $$", "[exit 7]", id="own trap"),
    ],
)
async def test_output_and_end(bench, command, text):
    output = await bench.call("bash", command=command)
    assert output.text == text
    exits = [(check.command, check.exit) for check in output.checks]
    assert exits == ([] if "signal" in text else [(command, int(text.rpartition("exit ")[2][:-1]))])


async def test_commands_run_in_the_working_directory_and_their_own_session(bench):
    text = await bench.text("bash", command="pwd; ps -o sid= -p $$ | tr -d ' '; echo $$")
    where, session, pid, _ = text.split("\n")
    assert where == str(bench.cwd)
    assert session == pid


async def test_no_descriptor_of_ours_reaches_a_command(bench):
    """B02."""
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    try:
        assert await bench.text("bash", command=f"test -e /dev/fd/{reading} && echo leaked") == "[exit 1]"
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo " + "x" * 200_000, "the command could not be started: Argument list too long"),
        ("echo a\0b", "NUL"),
        (" ", "command is empty"),
        ("echo \ud800", "surrogate"),
    ],
)
@pytest.mark.parametrize("background", [False, True])
async def test_commands_that_cannot_be_started(bench, command, told, background):
    """B06."""
    assert told in await bench.error("bash", command=command, background=background)
    assert bench.jobs.running() == [] and bench.events == []


async def test_a_long_command_that_fits(bench):
    """B06: what the system takes is run; what it does not is an error with a way out."""
    assert await bench.text("bash", command="echo " + "x" * 100_000) == "x" * 100_000 + "\n[exit 0]"
    with pytest.raises(ToolError) as caught:
        await bench.call("bash", command="echo " + "x" * 200_000)
    assert caught.value.next_step == "Put the long text into a file with write, and run that."


async def test_a_missing_shell_and_a_deleted_directory(bench, monkeypatch):
    """B06."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert "could not be started" in await bench.error("bash", command="echo x")
    os.rmdir(bench.cwd)
    assert "does not exist any more" in await bench.error("bash", command="echo x")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("echo done; sleep 60 &", id="holds both pipes"),
        pytest.param("(while :; do echo x; sleep .1; done) & echo done", id="goes on writing"),
        pytest.param("echo done; sleep 60 </dev/null >/dev/null &", id="holds stderr"),
        pytest.param("echo done; sleep 60 </dev/null >/dev/null 2>&1 &", id="holds nothing"),
        pytest.param("echo done; setsid sleep 60 </dev/null >/dev/null 2>&1 &", id="B04 left the group"),
        pytest.param("echo done; nohup sh -c 'while :; do date >>f; sleep .1; done' 2>/dev/null &", id="B04 nohup"),
        pytest.param("echo done; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &", id="B04 and TERM"),
    ],
)
async def test_what_a_command_leaves_running(bench, command):
    """B01: the answer comes at once and says so; the agent's end is theirs."""
    started = time.monotonic()
    text = await bench.text("bash", command=f"{command}\necho $! >pid")
    assert time.monotonic() - started < 20
    assert text.endswith(f"{LEFT}\n[exit 0]") and "done\n" in text
    pid = int((bench.cwd / "pid").read_text())
    await until(lambda: runs(pid))
    assert await bench.jobs.kill_all() == ([], [])
    assert not runs(pid)


async def test_what_is_left_running_may_go_on_writing(bench):
    """B01: its pipe is still read, so it does not die of it."""
    command = "(i=0; while [ $i -lt 30 ]; do echo line; i=$((i+1)); sleep .05; done; echo x >finished) & echo fg"
    assert LEFT in await bench.text("bash", command=command)
    await until(lambda: (bench.cwd / "finished").exists())


async def test_a_timeout(bench):
    started = time.monotonic()
    output = await bench.call("bash", command="echo before; sleep 60", timeout_secs=1)
    assert (output.text, output.checks) == ("before\n[timeout after 1s]", ())
    assert time.monotonic() - started < 20


async def test_a_timeout_of_one_that_ignores_TERM(bench):
    """B04: KILL comes after two seconds, also for what it started."""
    started = time.monotonic()
    text = await bench.text("bash", command="trap '' TERM; echo $$ >pid; sleep 60 & wait; sleep 60", timeout_secs=1)
    assert text == "[timeout after 1s]"
    assert 2.5 < time.monotonic() - started < 30
    assert not runs(int((bench.cwd / "pid").read_text()))


async def test_a_timeout_reaches_one_that_left_the_group(bench):
    """B04."""
    text = await bench.text("bash", command="setsid sleep 60 & echo $! >pid; sleep 60", timeout_secs=1)
    assert text == "[timeout after 1s]"
    assert not runs(int((bench.cwd / "pid").read_text()))


async def test_cancel(bench):
    call = asyncio.ensure_future(bench.call("bash", command="echo begun; echo $$ >pid; sleep 60"))
    await until(lambda: (bench.cwd / "pid").exists() and bool((bench.cwd / "pid").read_text()))
    started = time.monotonic()
    bench.ctx.cancelled.set()
    output = await call
    assert time.monotonic() - started < 0.5
    assert output.text == "begun\n[cancelled]"
    pid = int((bench.cwd / "pid").read_text())
    await until(lambda: not runs(pid))


async def test_a_cancelled_task_leaves_nothing_running(bench):
    call = asyncio.ensure_future(bench.call("bash", command="echo $$ >pid; sleep 60"))
    await until(lambda: (bench.cwd / "pid").exists() and bool((bench.cwd / "pid").read_text()))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    pid = int((bench.cwd / "pid").read_text())
    await until(lambda: not runs(pid))


async def test_a_flood_is_bounded_in_memory_and_whole_on_disk(bench):
    """B03."""
    output = await bench.call("bash", command="head -c 20000000 /dev/zero | tr '\\0' x; echo end; echo err >&2")
    assert len(output.text) < 2 * BASH_CAPTURE_BYTES
    assert output.text.endswith("xend\nerr\n[exit 0]")
    left_out = 20_000_004 - BASH_CAPTURE_BYTES
    assert f"\n[{left_out} bytes left out]\n" in output.text
    assert output.whole is not None
    assert output.whole.read_bytes() == b"x" * 20_000_000 + b"end\nerr\n"


async def test_many_short_lines(bench):
    """B03: nothing is done for each line."""
    output = await bench.call("bash", command="yes 12345678 | head -n 300000")
    assert output.whole is not None
    assert output.whole.read_bytes() == b"12345678\n" * 300_000
    assert "bytes left out]" in output.text and output.text.endswith("12345678\n[exit 0]")


@pytest.mark.parametrize("piece", [1, 100, 65536])
def test_the_memory_of_a_flood_is_bounded(tmp_path, piece):
    """B03: by head and tail, whatever the size of the pieces."""
    out = Capture(tmp_path, limit=BASH_CAPTURE_BYTES)
    data = b"x" * piece
    count = 4 * BASH_CAPTURE_BYTES // max(piece, 16)
    tracemalloc.start()
    for _ in range(count):
        out.feed(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * BASH_CAPTURE_BYTES
    assert out.total == count * piece
    out.close()


async def test_a_flood_does_not_hold_up_the_timeout(bench):
    """B03."""
    started = time.monotonic()
    output = await bench.call("bash", command="yes", timeout_secs=1)
    assert output.text.endswith("[timeout after 1s]")
    assert time.monotonic() - started < 5
    assert output.whole is not None
    assert output.whole.stat().st_size < 65 * 1024 * 1024


def test_a_stream_is_cut_on_characters(tmp_path):
    out, err = Capture(tmp_path), Capture(tmp_path)
    data = ("日" * 500_000).encode()
    for start in range(0, len(data), 4096):
        err.feed(data[start : start + 4096])
    out.feed(b"short\n")
    printed = join(out, err)
    assert "\\x" not in printed.text
    assert printed.whole is not None
    assert printed.whole.read_bytes() == b"short\n" + data
    assert os.listdir(tmp_path) == [printed.whole.name]


def test_the_spool_has_an_end(tmp_path):
    out = Capture(tmp_path, limit=2 * BASH_CAPTURE_BYTES)
    for _ in range(5 * BASH_CAPTURE_BYTES // 65536):
        out.feed(b"x" * 65536)
    whole = join(out, Capture(tmp_path)).whole
    assert whole is not None
    assert whole.read_bytes().endswith(b"x\n[only the first 2097152 bytes are kept]\n")


def test_a_disk_that_is_gone_costs_the_spool_only(tmp_path):
    (tmp_path / "file").write_text("")
    out = Capture(tmp_path / "file" / "spool")
    out.feed(b"x" * (BASH_CAPTURE_BYTES + 10))
    printed = join(out, Capture(tmp_path))
    assert printed.whole is None and "[10 bytes left out]" in printed.text


# --- jobs ------------------------------------------------------------------------------------------------------------


def events(bench: Bench) -> list[tuple[str, str, int | None]]:
    return [(event.job, event.event, event.code) for event in bench.events]


async def test_a_job_comes_back_when_it_exits(bench):
    assert await bench.text("bash", command="echo out; exit 3", background=True) == (
        "started job j1: its output comes when it exits".replace("j1:", "j1;")
    )
    assert await bench.jobs.wait_any(10) == [("j1", "[job j1 exited 3]\nout")]
    assert bench.jobs.take_finished() == []
    assert events(bench) == [("j1", "start", None), ("j1", "exit", 3)]
    assert bench.events[0].command == "echo out; exit 3"


async def test_jobs_run_beside_each_other(bench):
    """B02: a job's input is at its end too."""
    await bench.text("bash", command="cat; until [ -e go ]; do sleep .02; done; echo slow", background=True)
    await bench.text("bash", command="echo quick", background=True, timeout_secs=5)
    assert await bench.jobs.wait_any(10) == [("j2", "[job j2 exited 0]\nquick")]
    assert bench.jobs.running() == ["j1"]
    left = bench.jobs.longest_deadline()
    assert left is not None and 100 < left - time.monotonic() <= 120
    assert await bench.jobs.wait_any(0.05) == []
    bench.put("go")
    assert await bench.jobs.wait_any(10) == [("j1", "[job j1 exited 0]\nslow")]
    assert bench.jobs.longest_deadline() is None
    assert await bench.jobs.wait_any() == []


async def test_other_ends_of_a_job(bench):
    await bench.text("bash", command="kill -9 $$", background=True)
    assert await bench.jobs.wait_any(10) == [("j1", "[job j1 signal 9]")]
    await bench.text("bash", command="echo x; sleep 60", background=True, timeout_secs=1)
    assert await bench.jobs.wait_any(10) == [("j2", "[job j2 timeout after 1s]\nx")]
    assert [event[1:] for event in events(bench)][1::2] == [("exit", 137), ("exit", 124)]


async def test_the_end_of_the_agent_ends_its_jobs(bench):
    """B04: also one that ignores TERM and one that left the group."""
    await bench.text("bash", command="trap '' TERM; echo $$ >one; while :; do sleep 1; done", background=True)
    await bench.text("bash", command="setsid sleep 60 & echo $! >two; wait", background=True)
    files = [bench.cwd / "one", bench.cwd / "two"]
    await until(lambda: all(file.exists() and file.read_text() for file in files))
    started = time.monotonic()
    assert await bench.jobs.kill_all() == ([], [])
    assert time.monotonic() - started < 6
    assert not any(runs(int(file.read_text())) for file in files)
    assert sorted(events(bench)[2:]) == [("j1", "killed", None), ("j2", "killed", None)]
    assert bench.jobs.running() == []


async def test_a_long_output_of_a_job_is_on_disk(bench):
    await bench.text("bash", command="head -c 3000000 /dev/zero | tr '\\0' x", background=True)
    ((job, text),) = await bench.jobs.wait_any(20)
    whole = bench.jobs.whole(job)
    assert len(text) < 2 * BASH_CAPTURE_BYTES and whole is not None
    assert whole.stat().st_size == 3_000_000


async def test_a_process_that_ends_by_itself_is_not_reported(bench):
    await bench.text("bash", command="sleep 0.2 &")
    assert await bench.jobs.kill_all() == ([], [])
    assert signal.getsignal(signal.SIGCHLD) in (signal.SIG_DFL, None)
