"""`aerix` as a process over the real LSP room and a double of the sessions: outputs, exit codes, signals, pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aerix_server.protocol.events import LIVE_TYPES

AERIX = (sys.executable, str(Path(__file__).parent / "aerix_over_double.py"))


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "work").mkdir()
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1"}


def run(env: dict[str, str], tmp_path: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    more.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([*AERIX, *words], env=env, cwd=tmp_path / "work", capture_output=True, timeout=60, **more)


def test_text(env: dict[str, str], tmp_path: Path) -> None:
    done = run(env, tmp_path, "-p", "an answer \u00e9\x1b[31m")
    assert done.returncode == 0
    assert done.stdout == "an answer \u00e9\\e[31m\n".encode()
    assert b"final" in done.stderr
    assert b"\x1b" not in done.stdout + done.stderr
    assert (tmp_path / "work" / "ended").read_text() == "shutdown"


def test_quiet_says_nothing(env: dict[str, str], tmp_path: Path) -> None:
    done = run(env, tmp_path, "-p", "x", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"x\n", b"")


def test_json_is_one_object(env: dict[str, str], tmp_path: Path) -> None:
    done = run(env, tmp_path, "-p", "x", "--output-format", "json")
    assert done.stdout.count(b"\n") == 1
    result = json.loads(done.stdout)
    assert (result["outcome"], result["text"], result["session"], result["request"]) == ("final", "x", "s1", "r1")


def test_stream_json_has_every_event_in_order_and_the_result_last(env: dict[str, str], tmp_path: Path) -> None:
    done = run(env, tmp_path, "-p", "events 3000", "--output-format", "stream-json", "--quiet")
    lines = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
    # On a busy machine the command may fall behind: a notice then says so, and what it missed comes from the log.
    logged = [line["seq"] for line in lines[:-1] if line["type"] not in LIVE_TYPES]
    assert logged == list(range(1, 3002))
    assert lines[-2]["type"] == "request.end"
    assert lines[-1]["type"] == "result"


@pytest.mark.parametrize("locale", [{"LC_ALL": "C", "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}, {"LC_ALL": "C"}])
def test_output_is_utf8_in_any_locale(env: dict[str, str], tmp_path: Path, locale: dict[str, str]) -> None:
    for form in ("text", "json"):
        done = run({**env, **locale}, tmp_path, "-p", "h\u00e9 \u65e5\U0001f642", "--output-format", form)
        assert done.returncode == 0, done.stderr
        assert "h\u00e9 \u65e5\U0001f642" in done.stdout.decode("utf-8")


@pytest.mark.parametrize(
    ("words", "data", "code", "out"),
    [
        (["-p", "-"], b"from stdin\n", 0, b"from stdin\n"),
        (["-p"], b"\xef\xbb\xbfpiped", 0, b"piped\n"),
        (["-p"], b"x" * 1_000_000, 0, b"x" * 1_000_000 + b"\n"),
        (["-p", "-"], b"caf\xe9", 0, "caf\ufffd\n".encode()),
        (["-p", "-"], b" \n", 64, b""),
        (["-p"], b"", 64, b""),
        (["-p", ""], b"not read", 64, b""),
    ],
)
def test_prompts_from_stdin(
    env: dict[str, str], tmp_path: Path, words: list[str], data: bytes, code: int, out: bytes
) -> None:
    done = run(env, tmp_path, *words, stdin=None, input=data)
    assert (done.returncode, done.stdout) == (code, out)


def test_an_open_pipe_on_stdin_is_not_waited_for(env: dict[str, str], tmp_path: Path) -> None:
    read, write = os.pipe()
    try:
        assert run(env, tmp_path, "-p", "x", stdin=read).returncode == 0
    finally:
        os.close(read)
        os.close(write)


def test_closed_streams_are_no_fault(env: dict[str, str], tmp_path: Path) -> None:
    for streams in ("<&-", "<&- >&-", "<&- >&- 2>&-"):
        command = f'"$0" "$1" -p x {streams}'
        done = subprocess.run(["sh", "-c", command, *AERIX], env=env, cwd=tmp_path, capture_output=True, timeout=60)
        assert done.returncode == 0, (streams, done.stderr)


@pytest.mark.parametrize("form", ["text", "json"])
def test_without_a_pool_it_is_4(env: dict[str, str], tmp_path: Path, form: str) -> None:
    done = run(env, tmp_path, "-p", "no pool", "--output-format", form)
    assert done.returncode == 4
    assert b"No pool answers. Start one." in done.stderr
    if form == "json":
        result = json.loads(done.stdout)
        assert (result["outcome"], result["reason"]) == ("failed", "No pool answers. Start one.")
    else:
        assert done.stdout == b""


def test_wrong_usage_is_64_with_usage_on_stderr(env: dict[str, str], tmp_path: Path) -> None:
    done = run(env, tmp_path, "--nope")
    assert (done.returncode, done.stdout) == (64, b"")
    assert done.stderr.startswith(b"usage: aerix")
    assert run(env, tmp_path).returncode == 64
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "text"}')
    wrong = run(env, tmp_path, "-p", "x", "--output-schema", str(schema))
    assert wrong.returncode == 64
    assert b"outputSchema: type" in wrong.stderr


def test_a_fault_of_the_server_is_1_without_its_details(env: dict[str, str], tmp_path: Path) -> None:
    done = run(env, tmp_path, "-p", "crash", "--output-format", "json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["outcome"] == "failed"
    assert b"secret" not in done.stderr
    assert b"Traceback" not in done.stderr
    assert run(env, tmp_path, "pool", "status").returncode == 1


def test_a_server_that_dies_is_1_and_its_log_is_named(env: dict[str, str], tmp_path: Path) -> None:
    script = (
        "import aerix_cli.connect as c, aerix_cli.main as m; c.COMMAND = ('sh', '-c', 'echo why >&2; exit 7'); m.main()"
    )
    command = [sys.executable, "-c", script, "-p", "x", "--output-format", "json"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert json.loads(done.stdout)["outcome"] == "failed"
    assert b"status 7" in done.stderr
    assert b"server.log" in done.stderr
    assert b"why" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_and_the_result_says_so(env: dict[str, str], tmp_path: Path, number: int) -> None:
    words = ["-p", "hang", "--output-format", "json"]
    process = subprocess.Popen(
        [*AERIX, *words],
        env=env,
        cwd=tmp_path / "work",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    wait_for_server(process)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert json.loads(out)["outcome"] == "cancelled"
    assert b"Traceback" not in err
    assert (tmp_path / "work" / "ended").exists()


def wait_for_server(process: subprocess.Popen[bytes]) -> None:
    """Until the first notice of the request: the double says one when it starts to hang."""
    assert process.stderr
    assert process.stderr.readline() == b"hanging\n"


@pytest.mark.parametrize("form", ["stream-json", "text"])
def test_a_reader_that_leaves_is_141(env: dict[str, str], tmp_path: Path, form: str) -> None:
    read, write = os.pipe()
    process = subprocess.Popen(
        [*AERIX, "-p", "hang", "--output-format", form],
        env=env,
        cwd=tmp_path / "work",
        stdin=subprocess.DEVNULL,
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    wait_for_server(process)
    os.close(read)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 141
    assert b"Traceback" not in err
    assert b"BrokenPipe" not in err


def test_a_full_disk_is_1_with_a_sentence(env: dict[str, str], tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*AERIX, "-p", "x"], env=env, cwd=tmp_path / "work", stdout=full, stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_folder_that_shadows_modules_is_harmless(env: dict[str, str], tmp_path: Path) -> None:
    for name in ("json.py", "aerix_server.py", "logging.py"):
        (tmp_path / "work" / name).write_text("raise SystemExit(9)\n")
    assert run(env, tmp_path, "-p", "x").returncode == 0


def test_version() -> None:
    done = subprocess.run([*AERIX, "--version"], capture_output=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout.startswith(b"aerix ")
