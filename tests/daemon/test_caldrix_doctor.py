"""`caldrix doctor`: each check on its own, and the command on a machine whose parts are out of order."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import platform
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from engine_flags import cmake_args

from caldrix.commands.arguments import parse
from caldrix.commands.checks import Check, as_json, fail, ok, warn
from caldrix.commands.checks_build import Library, check_build, kernels_check, wait_check
from caldrix.commands.checks_machine import cores_check, cpu_check, cpu_quota, disk_check, memory_check
from caldrix.commands.checks_model import constraint_check, file_check, prefix_check, refused_check, speed_check
from caldrix.commands.checks_socket import check_socket
from caldrix.commands.doctor import doctor, lines
from caldrix.commands.doctor_child import thread_counts
from caldrix.commands.measure import Timed
from caldrix.commands.processor import built_features, cpu_features, cpu_flags, model_name, rebuild_command
from caldrix.commands.trial import in_child
from caldrix.daemon.options import LoadSpec, PoolOptions
from caldrix.engine.api import ServingFlags
from caldrix.protocol.frames import encode
from tests.daemon.daemon_pool import BOUND_S, Served, served, until
from tests.daemon.fake_engine import FakeLoader
from tests.doubles.toy_backend import load_toy

ROOT = Path(__file__).parents[2]
HASWELL = frozenset(["sse2", "pni", "ssse3", "sse4_2", "avx", "avx2", "bmi2", "fma", "f16c"])
SERVER = HASWELL | frozenset(["avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw", "avx512vbmi", "avx512_vnni"])
GIB = 1 << 30


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor's child processes inherit it."""
    monkeypatch.chdir(ROOT)


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


# --- the socket ------------------------------------------------------------------------------------------------------


async def statuses(path: Path) -> dict[str, str]:
    return {check.name: check.status for check in (await check_socket(path)).checks}


async def test_a_socket_that_no_pool_has_made(folder: Path) -> None:
    found = await check_socket(folder / "new" / "p.sock")
    assert [check.status for check in found.checks] == ["ok"] * 4 and found.status is None


async def test_a_pool_that_answers(pool: Served) -> None:
    found = await check_socket(pool.socket)
    assert {check.status for check in found.checks} == {"ok"}, found.checks
    assert found.status is not None and found.status.pool.pid == os.getpid()
    assert f"process {os.getpid()}" in by_name(found.checks)["pool"].found


async def test_a_path_that_is_too_long() -> None:
    (check,) = (await check_socket(Path("/tmp/" + "x" * 200))).checks
    assert check.status == "fail" and "205 bytes" in check.found and check.fix


async def test_a_folder_that_others_can_look_into(folder: Path) -> None:
    folder.chmod(0o755)
    check = by_name((await check_socket(folder / "p.sock")).checks)["socket folder"]
    assert check.status == "warn" and check.fix == f"chmod 700 {folder}"


async def test_a_file_in_the_sockets_place(folder: Path) -> None:
    path = folder / "p.sock"
    path.write_text("precious")
    assert (await statuses(path))["socket"] == "fail" and path.read_text() == "precious"


async def test_a_stale_socket(folder: Path) -> None:
    path = folder / "p.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
        path.chmod(0o666)
    found = by_name((await check_socket(path)).checks)
    assert found["pool"].status == "warn" and "stale" in found["pool"].found and path.exists()
    assert found["socket"].fix == f"chmod 600 {path}"


@pytest.mark.parametrize("stale", [True, False])
async def test_a_lock_that_is_held_without_a_pool(folder: Path, stale: bool) -> None:
    path = folder / "p.sock"
    if stale:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        check = by_name((await check_socket(path)).checks)["pool"]
    assert check.status == "warn" and "loading a model" in check.found and f"kill {os.getpid()}" in str(check.fix)


@contextlib.asynccontextmanager
async def listener(path: Path, reply: bytes) -> AsyncIterator[None]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(reply)
        writer.close()

    server = await asyncio.start_unix_server(answer, path)
    async with server:
        yield


async def test_something_else_listens(folder: Path) -> None:
    async with listener(folder / "p.sock", b"SSH-2.0-x\r\n"):
        check = by_name((await check_socket(folder / "p.sock")).checks)["pool"]
    assert check.status == "fail" and "does not answer as a pool" in check.found


async def test_a_pool_of_another_version(folder: Path) -> None:
    refusal = {"type": "Error", "id": 1, "code": "version", "message": "this pool speaks 9", "supported": [9]}
    async with listener(folder / "p.sock", encode(refusal, "cbor")):
        check = by_name((await check_socket(folder / "p.sock")).checks)["pool"]
    assert check.status == "fail" and "speaks 9" in check.found and "caldrix pool stop" in str(check.fix)


# --- the build -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [frozenset({"sse4_2"}), HASWELL, SERVER, SERVER - {"avx512f"}, frozenset()])
def test_the_rebuild_command_is_that_of_set_up(flags: frozenset[str]) -> None:
    words = rebuild_command("0.3.36", flags).split('"')[1].split()
    assert set(words) == set(cmake_args(platform.system(), platform.machine(), flags)) and len(words) == len(set(words))


@pytest.mark.parametrize(
    ("built", "flags", "status", "said"),
    [
        ({"AVX", "AVX2"}, {"avx", "avx2"}, "ok", "all that this processor has"),
        ({"AVX"}, {"avx", "avx2"}, "warn", "AVX2"),
        ({"AVX", "AVX2"}, {"avx"}, "fail", "no AVX2"),
        (set(), {"avx"}, "warn", "no instruction sets"),
        ({"AVX"}, set(), "ok", "not known"),
        ({"NEON"}, {"asimd", "asimddp"}, "warn", "DOTPROD"),
    ],
)
def test_kernels_against_the_processor(built: set[str], flags: set[str], status: str, said: str) -> None:
    check = kernels_check(built, flags, "rebuild!")
    assert check.status == status and said in check.found
    assert check.fix == (None if status == "ok" else "rebuild!")


@pytest.mark.parametrize(
    ("built", "policy", "spins", "status"),
    [
        ({"OPENMP"}, None, "2000", "ok"),
        ({"OPENMP"}, "PASSIVE", None, "warn"),
        ({"OPENMP"}, "active", "2000", "warn"),
        ({"OPENMP"}, None, None, "warn"),
        (set(), None, None, "ok"),
    ],
)
def test_waiting_threads(built: set[str], policy: str | None, spins: str | None, status: str) -> None:
    assert wait_check(built, policy, spins).status == status


def test_a_build_with_amx_and_one_that_does_not_load() -> None:
    info = "CPU : SSE3 = 1 | AVX = 1 | AVX512 = 0 | AMX_INT8 = 1 | OPENMP = 1 | "
    assert built_features(info) == {"SSE3", "AVX", "AMX_INT8", "OPENMP"}
    facts = {"version": "0.0.1", "system_info": info, "wait_policy": None, "spins": "2000", "gpu": False}
    found = by_name(check_build(Library(facts), {"pni", "avx"}))
    assert found["AMX"].status == "warn" and "AMX" not in str(found["AMX"].fix)
    assert found["engine"].status == "warn" and "0.0.1" in found["engine"].found
    (dead,) = check_build(Library(None, "ended its process with SIGILL while it loaded"), HASWELL)
    assert dead.status == "fail" and "SIGILL" in dead.found and "CMAKE_ARGS=" in str(dead.fix)


def test_reading_cpuinfo() -> None:
    text = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: avx avx2\n\nflags\t: none\n"
    assert model_name(text) == "Some CPU" and cpu_flags(text) == {"avx", "avx2"}
    assert cpu_features(cpu_flags("Features\t: fp asimd asimddp\n")) == {"NEON", "DOTPROD"}
    assert cpu_flags("") == frozenset() and model_name("")


# --- the machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "quota", "threads", "load", "status", "said"),
    [
        (4, None, {}, 0.5, "ok", "4 cores"),
        (4, None, {"main": 4}, 0.5, "ok", "main uses 4"),
        (4, None, {"main": 8}, 0.5, "warn", "--threads 4"),
        (4, 1.5, {"main": 2}, 0.5, "warn", "--threads 1"),
        (4, 2.0, {}, 0.5, "warn", "--threads 2"),
        (4, None, {}, 15.0, "warn", "other programs"),
    ],
)
def test_cores(cores: int, quota: float | None, threads: dict[str, int], load: float, status: str, said: str) -> None:
    check = cores_check(cores, 8, quota, threads, load)
    assert check.status == status and said in f"{check.found} {check.fix}"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n"}, 1.5),
        (
            {
                "proc/self/cgroup": "0::/a\n",
                "sys/fs/cgroup/a/cpu.max": "max 100000\n",
                "sys/fs/cgroup/cpu.max": "50000 100000\n",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/x\n2:memory:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
            },
            None,
        ),
    ],
)
def test_a_containers_quota(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(
    ("available", "group", "limit", "used", "status"),
    [
        (12 * GIB, None, 12 * GIB, 0, "ok"),
        (1 * GIB, None, 12 * GIB, 0, "warn"),
        (1 * GIB, None, 12 * GIB, 10 * GIB, "ok"),
        (12 * GIB, 4 * GIB, 12 * GIB, 0, "fail"),
        (12 * GIB, None, 20 * GIB, 0, "fail"),
    ],
)
def test_memory(available: int, group: int | None, limit: int, used: int, status: str) -> None:
    check = memory_check(16 * GIB, available, group, limit, used)
    assert check.status == status and (check.fix is None) == (status == "ok")


def test_disk_and_processor(tmp_path: Path) -> None:
    assert disk_check(tmp_path / "not" / "yet").status in ("ok", "warn")
    (tmp_path / "file").write_text("")
    assert disk_check(tmp_path / "file" / "models").status == "fail"
    assert cpu_check("x", HASWELL).status == "ok" and cpu_check("x", {"sse2", "avx"}).status == "warn"
    assert cpu_check("x", {"asimd"}).status == "ok"


# --- the model -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('{"answer": "yes", "sure": true}', "ok"),
        ('{"answer": "yes", "sure": 1}', "fail"),
        ('{"answer": "yes"}', "fail"),
        ("[]", "fail"),
        ("yes", "fail"),
        ("", "fail"),
    ],
)
def test_a_constraint_that_was_followed_or_not(text: str, status: str) -> None:
    assert constraint_check(text, "stop", 5).status == status


def timed(prompt: int, resumed: int, prefill_ms: int) -> Timed:
    return Timed("x", "stop", prompt, resumed, 1, prefill_ms, 0)


@pytest.mark.parametrize(
    ("warm", "status", "said"),
    [
        (timed(101, 90, 10), "ok", "0.05 of the time"),
        (timed(101, 0, 200), "warn", "--context-budget"),
        (timed(101, 90, 180), "warn", "0.90"),
    ],
)
def test_a_resumed_prompt(warm: Timed, status: str, said: str) -> None:
    check = prefix_check(timed(100, 0, 200), warm)
    assert check.status == status and said in f"{check.found} {check.fix}"
    assert prefix_check(timed(100, 0, 0), timed(100, 90, 0)).status == "ok"


def speed(threads: int, decode: float | None) -> dict[str, Any]:
    return {"trial": "speed", "threads": threads, "prefill": 50.0, "decode": decode}


@pytest.mark.parametrize(
    ("decodes", "chosen", "status", "said"),
    [
        ({1: 10.0, 2: 18.0}, 2, "ok", "2 threads decodes fastest"),
        ({1: 18.0, 2: 10.0}, 2, "warn", "--threads 1"),
        ({1: 18.0, 2: 17.0}, 2, "ok", "1 thread decodes fastest"),
        ({1: None}, 1, "ok", "? decode"),
    ],
)
def test_threads_that_win(decodes: dict[int, float | None], chosen: int, status: str, said: str) -> None:
    load = {"trial": "load", "member": {"threads": chosen}}
    check = speed_check([load, *(speed(*pair) for pair in decodes.items())], on_pool=False)
    assert check is not None and check.status == status and said in f"{check.found} {check.fix}"
    assert speed_check([load], on_pool=False) is None


@pytest.mark.parametrize("code", ["memory", "model_refused", "model_not_found", "footprint_unknown", "engine_failed"])
def test_a_refused_model_is_a_failure_with_a_fix(code: str) -> None:
    check = refused_check(code, "because", "rebuild!")
    assert check.status == "fail" and check.found == "because" and check.fix


def test_files(tmp_path: Path) -> None:
    text = tmp_path / "notes.gguf"
    text.write_text("not a model")
    assert "GGUF" in file_check(str(text)).found and file_check(str(text)).status == "fail"
    missing = file_check("qwen2.5-coder-nothing")
    assert missing.status == "fail" and "caldrix pull" in str(missing.fix)
    assert file_check("openai:http://localhost/v1#m").status == "ok"


@pytest.mark.parametrize(("cores", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])])
def test_which_threads_are_tried(cores: int, counts: list[int]) -> None:
    assert thread_counts(cores) == counts


# --- trials in a child -----------------------------------------------------------------------------------------------


def toy_script(folder: Path, **facts: Any) -> Path:
    path = folder / "script.json"
    path.write_text(json.dumps({"replies": ["an answer that is long enough to be timed"], **facts}))
    return path


async def records(reference: str, *command: str) -> list[dict[str, Any]]:
    async with asyncio.timeout(BOUND_S):
        return [record async for record in in_child(reference, ServingFlags(threads=2), 0, command)]


async def test_a_child_tries_everything(tmp_path: Path) -> None:
    made = await records(str(toy_script(tmp_path)), sys.executable, "-m", "tests.daemon.toy_doctor_child")
    assert [record["trial"] for record in made] == ["load", "constraint", "prefix", "speed", "speed"]
    load, constraint, prefix, *speeds = made
    assert load["member"]["template"]["source"] == "gguf"
    assert constraint_check(constraint["text"], constraint["finish"], 0).status == "ok"
    assert prefix["cold"]["resumed"] < 50 < prefix["cold"]["prompt"] // 2 < prefix["warm"]["resumed"]
    assert [record["threads"] for record in speeds] == [1, 2]


async def test_a_child_that_is_refused_says_so() -> None:
    (made,) = await records("/no/such/script", sys.executable, "-m", "tests.daemon.toy_doctor_child")
    assert made["trial"] == "refused" and made["code"] == "model_not_found"


async def test_a_child_that_dies_is_a_finding() -> None:
    begin = 'echo \'{"begin": "prefix"}\'; echo native noise; echo GGML_ASSERT >&2; kill -ILL $$'
    (made,) = await records("x", "sh", "-c", begin)
    assert made == {"trial": "died", "during": "prefix", "how": "SIGILL", "said": "GGML_ASSERT"}


async def test_a_trial_that_is_left_ends_its_child_and_what_that_started(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    command = ("sh", "-c", f'sleep 1000 & echo $! > {started}; echo \'{{"trial": "load"}}\'; wait')
    trial = in_child("x", ServingFlags(), 0, command)
    assert await anext(trial) == {"trial": "load"}
    grandchild = psutil.Process(int(started.read_text()))
    await trial.aclose()
    await until(lambda: not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE, "its end")


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def quiet_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    yield folder


def report(words: list[str], capsys: pytest.CaptureFixture[str], *child: str) -> tuple[int, dict[str, Any]]:
    code = doctor(parse(["doctor", "--json", *words]), *([child] if child else []))
    out, err = capsys.readouterr()
    assert not err, err
    return code, json.loads(out)


def test_one_object_with_every_check(quiet_machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = report(["--socket", str(quiet_machine / "p.sock")], capsys)
    names = [check["name"] for check in found["checks"]]
    assert names[:4] == ["socket path", "socket folder", "socket", "pool"]
    assert {"engine", "kernels", "waiting threads", "processor", "cores", "memory", "disk"} <= set(names)
    assert code == 0 and found["ok"] is True
    for check in found["checks"]:
        assert check["status"] == "ok" or check["fix"], check


def test_a_failed_check_is_exit_code_1(quiet_machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (quiet_machine / "p.sock").write_text("")
    code, found = report(["--socket", str(quiet_machine / "p.sock")], capsys)
    assert code == 1 and found["ok"] is False
    code, found = report(["--socket", str(quiet_machine / "q.sock"), "no-such-model"], capsys)
    assert code == 1 and found["checks"][-1]["name"] == "file"


class ToyLoader(FakeLoader):
    """Scripted members in place of fake ones."""

    def __call__(self, *given: Any) -> Any:
        return load_toy(*given)


async def test_a_running_pool_is_asked_about_its_model(
    options: PoolOptions, quiet_machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loads = (LoadSpec(str(toy_script(quiet_machine)), "main"),)
    async with served(replace(options, loads=loads), ToyLoader()):
        code, found = await asyncio.to_thread(report, ["--socket", str(options.socket), "main"], capsys, "false")
    checks = {check["name"]: check for check in found["checks"]}
    assert code == 0, found
    assert "running pool" in checks["fit"]["found"] and checks["constraint"]["status"] == "ok"
    assert checks["prefix store"]["facts"]["resumed"] > 0 and checks["speed"]["status"] == "ok"
    assert "file" not in checks


def test_a_check_that_breaks_is_a_finding(quiet_machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = quiet_machine / "m.gguf"
    model.write_bytes(b"GGUF")
    words = ["--socket", str(quiet_machine / "p.sock"), "openai:x#y"]
    code, found = report(words, capsys, sys.executable, "-c", 'print(\'{"trial": "load"}\')')
    assert code == 1 and "the check itself failed" in found["checks"][-1]["found"]


async def test_lines_without_escapes_in_a_pipe(folder: Path) -> None:
    command = ["-m", "caldrix", "doctor", "--socket", str(folder / "p.sock")]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), BOUND_S)
    assert process.returncode in (0, 1) and not err and b"\x1b" not in out
    assert all(line[:4].strip() in ("ok", "warn", "fail") for line in out.decode().splitlines())
    assert all(b"fix: " in line for line in out.splitlines() if not line.startswith(b"ok"))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_lines_fit_the_terminal(width: int) -> None:
    check = warn("socket folder", "found " * 30, "mend " * 30)
    shown = lines(check, width)
    assert all(len(line) < width for line in shown) and shown[0].startswith("warn  socket folder")
    assert any(line.strip().startswith("fix: mend") for line in shown)
    command = lines(fail("engine", "bad", 'A="' + "x " * 200 + '" pip'), width)
    assert command[-1].startswith('A="x') and command[-1].endswith("pip"), "a command stays whole"
    assert "\\x1b" in "".join(lines(fail("x", "a \x1b[2J", "y"), width))


def test_a_report_as_json() -> None:
    found = as_json([ok("a", "fine", number=1), fail("b", "bad", "mend")], None)
    assert found == {
        "ok": False,
        "reference": None,
        "checks": [
            {"name": "a", "status": "ok", "found": "fine", "facts": {"number": 1}},
            {"name": "b", "status": "fail", "found": "bad", "fix": "mend"},
        ],
    }


@pytest.mark.model
def test_the_embedded_model_is_sound(quiet_machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = report(
        ["--socket", str(quiet_machine / "p.sock"), "--context-budget", "200M", "smollm2-instruct"], capsys
    )
    checks = {check["name"]: check for check in found["checks"]}
    assert code == 0, found
    assert {"file", "fit", "template", "constraint", "prefix store", "speed"} <= set(checks)
    assert checks["prefix store"]["facts"]["ratio"] < 0.5
