"""Starting: the lock, stale sockets, races of processes, private files, signals, and the commands to a running pool."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from caldrix.client.client import PoolClient
from caldrix.daemon.binding import lock
from caldrix.daemon.options import CannotStart, PoolOptions
from caldrix.daemon.peer import is_ours, peer_uid
from caldrix.protocol.errors import ConnectionLost
from tests.daemon.daemon_pool import BOUND_S, Served, served, until
from tests.daemon.fake_engine import FakeLoader

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

Process = asyncio.subprocess.Process
Spawn = Callable[..., "asyncio.Future[Process]"]


@pytest.fixture
async def spawn(folder: Path) -> AsyncIterator[Spawn]:
    """Starts `python WORDS` with private folders; what still runs at the end is killed."""
    processes: list[Process] = []
    env = os.environ | {
        "PYTHONPATH": f"{ROOT}:{HERE}",
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
    }

    async def start(*words: str) -> Process:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
        processes.append(process)
        return process

    yield start  # type: ignore[misc]
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def pool_words(path: Path, *more: str) -> list[str]:
    return [
        str(HERE / "fake_pool.py"),
        "pool",
        "--socket",
        str(path),
        "--load",
        "fake=main",
        "--idle-timeout",
        "0",
        *more,
    ]


async def finished(process: Process) -> tuple[int, str, str]:
    async with asyncio.timeout(BOUND_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def caldrix(spawn: Spawn, *words: str) -> tuple[int, str, str]:
    return await finished(await spawn("-m", "caldrix", *words))


async def test_exactly_one_of_many_pools_serves(folder: Path, spawn: Spawn) -> None:
    path = folder / "p.sock"
    started = [await spawn(*pool_words(path)) for _ in range(6)]
    await until(path.exists, "one pool")
    ends = [asyncio.create_task(finished(process)) for process in started]
    await until(lambda: sum(end.done() for end in ends) == 5, "the losers to leave")
    for code, out, err in (end.result() for end in ends if end.done()):
        assert code == 3 and not out and len(err.splitlines()) == 1 and "another pool" in err
    (winner,) = (process for process in started if process.returncode is None)
    async with await PoolClient.connect(path, "me") as client:
        assert client.welcome.pool.pid == winner.pid
    code, _, _ = await caldrix(spawn, "pool", "stop", "--socket", str(path))
    assert code == 0 and not path.exists()
    again = await spawn(*pool_words(path))
    await until(path.exists, "a pool to take the place at once")
    again.terminate()
    assert (await finished(again))[0] == 0 and not path.exists()
    await asyncio.gather(*ends)


async def test_status_and_stop_of_a_pool_and_of_none(folder: Path, spawn: Spawn) -> None:
    path = folder / "p.sock"
    process = await spawn(*pool_words(path))
    await until(path.exists, "the pool")
    code, out, _ = await caldrix(spawn, "pool", "status", "--socket", str(path), "--json")
    assert code == 0 and json.loads(out)["pool"]["pid"] == process.pid
    code, out, _ = await caldrix(spawn, "pool", "--socket", str(path), "status")
    assert code == 0 and "main  fake, ready" in out and "1 connected" in out
    code, out, _ = await caldrix(spawn, "pool", "stop", "--socket", str(path), "--json")
    assert code == 0 and json.loads(out) == {"stopped": True, "pid": process.pid}
    for action in ("status", "stop"):
        code, out, err = await caldrix(spawn, "pool", action, "--socket", str(path))
        assert code == 1 and not out and f"no pool answers on {path}" in err and "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_in_order(folder: Path, spawn: Spawn, number: signal.Signals) -> None:
    path = folder / "p.sock"
    process = await spawn(*pool_words(path, "--foreground"))
    await until(path.exists, "the pool")
    async with await PoolClient.connect(path, "me") as client:
        process.send_signal(number)
        assert await client.closed(BOUND_S)
    code, out, err = await finished(process)
    assert code == 0 and not out and not path.exists()
    events = [json.loads(line)["event"] for line in err.splitlines() if line.startswith("{")]
    assert events == ["loaded", "listening", "stopping", "stopped"]


async def test_without_foreground_a_closed_terminal_changes_nothing(folder: Path, spawn: Spawn) -> None:
    path = folder / "p.sock"
    process = await spawn(*pool_words(path))
    await until(path.exists, "the pool")
    process.send_signal(signal.SIGHUP)
    async with await PoolClient.connect(path, "me") as client:
        await client.status()
        await client.stop()
    code, _, err = await finished(process)
    assert code == 0 and f"listening on {path} (main)" in err and "{" not in err
    log = folder / "state" / "caldrix" / "pool.log"
    assert '"event": "listening"' in log.read_text() and stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["pool", "--load", "missing"], 1, "cannot load missing: there is no model missing"),
        (["pool", "--load", "a=x", "--load", "b=x"], 64, "two --load have one name"),
        (["pool", "--idle-timeout", "-1"], 64, "--idle-timeout"),
        (["pool", "--window", "0"], 64, "--window"),
        (["pool", "--memory-limit", "8Q"], 64, "--memory-limit"),
        (["pool", "--socket", "/tmp/" + "x" * 120], 64, "107" if sys.platform == "linux" else "103"),
        (["pool", "--bogus"], 64, "--bogus"),
        ([], 64, "COMMAND"),
    ],
)
async def test_a_start_that_fails_says_why(folder: Path, spawn: Spawn, words: list[str], code: int, said: str) -> None:
    got, out, err = await finished(await spawn(str(HERE / "fake_pool.py"), *words))
    assert got == code and said in err and not out and "Traceback" not in err


async def test_a_stale_socket_is_replaced(options: PoolOptions) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(options.socket))
    async with served(options, FakeLoader()) as pool:
        assert (await pool.client()).welcome.version == 2


async def test_what_is_no_socket_is_left_alone(options: PoolOptions) -> None:
    loader = FakeLoader()
    options.socket.write_text("precious")
    with pytest.raises(CannotStart, match="not a socket") as error:
        async with served(options, loader):
            pass
    assert error.value.exit_code == 1 and options.socket.read_text() == "precious" and not loader.members
    options.socket.unlink()
    options.socket.symlink_to("elsewhere")
    with pytest.raises(CannotStart, match="not a socket"):
        async with served(options, loader):
            pass
    assert options.socket.is_symlink()


async def test_a_slow_listener_is_not_dead(options: PoolOptions) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(options.socket))
        listener.listen()
        with pytest.raises(CannotStart, match="already listens") as error:
            async with served(options, FakeLoader()):
                pass
        assert error.value.exit_code == 3 and options.socket.exists()


async def test_a_held_lock_is_told_before_anything_is_loaded(options: PoolOptions) -> None:
    descriptor = lock(options.socket)
    loader = FakeLoader()
    with pytest.raises(CannotStart) as error:
        async with served(options, loader):
            pass
    os.close(descriptor)
    assert error.value.exit_code == 3 and not loader.members


async def test_a_socket_of_another_is_not_removed(pool: Served) -> None:
    pool.socket.unlink()
    pool.socket.write_text("somebody else's")
    pool.stop.set()
    assert await pool.ended() == 0
    assert pool.socket.read_text() == "somebody else's"


async def test_files_are_private(options: PoolOptions, folder: Path) -> None:
    path = folder / "new" / "p.sock"
    async with served(replace(options, socket=path), FakeLoader()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(Path(f"{path}.lock").stat().st_mode) == 0o600


def test_the_peer_is_known() -> None:
    one, two = socket.socketpair(socket.AF_UNIX)
    with one, two:
        assert peer_uid(one) == os.getuid()
    assert is_ours(os.getuid()) and not is_ours(os.getuid() + 1)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
async def test_another_user_is_refused(pool: Served, folder: Path) -> None:
    folder.chmod(0o755)
    pool.socket.chmod(0o666)
    script = (
        "import os, socket, sys; os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.settimeout(20);"
        f"s.connect({str(pool.socket)!r}); sys.exit(len(s.recv(1)))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    async with asyncio.timeout(BOUND_S):
        assert await process.wait() == 0, "the other user was answered"
    assert (await (await pool.client()).status()).connections == 1


async def test_a_pool_that_dies_leaves_its_clients_a_sentence(folder: Path, spawn: Spawn) -> None:
    path = folder / "p.sock"
    process = await spawn(*pool_words(path))
    await until(path.exists, "the pool")
    async with await PoolClient.connect(path, "me") as client:
        process.kill()
        with pytest.raises(ConnectionLost, match="pool"):
            await client.status()
            await client.status()
    await finished(process)
    with pytest.raises(ConnectionLost, match="no pool answers"):
        await PoolClient.connect(path, "me")
    again = await spawn(*pool_words(path))
    async with asyncio.timeout(BOUND_S):
        while True:
            with contextlib.suppress(ConnectionLost):
                async with await PoolClient.connect(path, "me") as client:
                    assert client.welcome.pool.pid == again.pid
                    break
            await asyncio.sleep(0.02)
