"""A pool as a process of its own: the real command over scripted members or real models, with private folders."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.daemon.raw_wire import RawWire

ROOT = Path(__file__).parent.parent.parent
START_S = 60.0
POLL_S = 0.02
TOY = "tests.doubles.toy_caldrix"
REAL = "caldrix"


@dataclass(frozen=True)
class PoolProcess:
    """`process` listens on `socket`; its log and last words are in `said`."""

    process: subprocess.Popen[bytes]
    socket: Path
    said: Path

    async def wire(self, client_id: str, fmt: str = "cbor") -> RawWire:
        """A greeted connection."""
        wire = await RawWire.open(self.socket, fmt)
        assert (await wire.hello(client_id=client_id))["type"] == "Welcome"
        return wire

    def rss(self) -> int:
        """Resident bytes."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(START_S)


@contextlib.contextmanager
def pool_process(folder: Path, *words: str, module: str = TOY) -> Iterator[PoolProcess]:
    """Run `python -m MODULE pool WORDS` on `folder`/p.sock until the block ends."""
    socket, said = folder / "p.sock", folder / "said.txt"
    folders = {f"XDG_{name}": str(folder / name.lower()) for name in ("CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")}
    command = [sys.executable, "-m", module, "pool", "--socket", str(socket), "--idle-timeout", "0", "--foreground"]
    with said.open("ab") as file:
        process = subprocess.Popen(
            [*command, *words],
            env=os.environ | folders | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        _wait_for_listening(process, said)
        yield PoolProcess(process, socket, said)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(START_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        process.wait(START_S)


def _wait_for_listening(process: subprocess.Popen[bytes], said: Path) -> None:
    """A pool that was killed leaves its socket, so the line that this one wrote is what tells."""
    end = time.monotonic() + START_S
    mark = f'"pid": {process.pid}'
    while not any('"listening"' in line and mark in line for line in said.read_text().splitlines()):
        with contextlib.suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the pool ended with {process.wait(POLL_S)}: {said.read_text()}")
        assert time.monotonic() < end, f"no pool within {START_S} s: {said.read_text()}"
