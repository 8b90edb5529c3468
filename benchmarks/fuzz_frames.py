"""Fuzz a real pool over its socket: `python -m benchmarks.fuzz_frames --minutes 10`.

Several attackers send mutated messages and mutated bytes, as CBOR and as JSON, while an honest client generates all the
time and the pool's memory, descriptors, threads and status are watched. It prints what was sent, the answers by kind
and the memory by minute and at three rests, of which the last must be as the first. It exits 1 on a dead pool, on
growth, on a request without its answer, and on any failure of the honest client; the bytes that were sent then lie in
files. `--atheris` fuzzes the decoder alone, guided by coverage.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Final

from benchmarks.fuzz.attack import attack
from benchmarks.fuzz.messages import MEMBER
from benchmarks.fuzz.talk import Tally
from benchmarks.fuzz.watch import Watched, behave, fill_caches, growth, thirds, watch
from benchmarks.pool.process import gone, started

RESTS: Final = 3
REST_S: Final = 70.0
"""Contexts outlive their clients by a minute: after it, what the pool holds is its own."""
BUDGET: Final = "16M"
MIB: Final = 1 << 20


class Verdict:
    """What went wrong, each with the bytes that were sent, in `folder`."""

    def __init__(self, folder: Path, stop: asyncio.Event) -> None:
        self.faults: list[str] = []
        self._folder = folder
        self._stop = stop

    def blame(self, fault: str, sent: Sequence[bytes] = ()) -> None:
        """Note a fault, and end the run after the tenth."""
        self.faults.append(fault)
        self._folder.mkdir(parents=True, exist_ok=True)
        for place, data in enumerate(sent):
            (self._folder / f"fault-{len(self.faults)}-{place}.bin").write_bytes(data)
        print(f"FAULT: {fault}", flush=True)
        if len(self.faults) >= 10:
            self._stop.set()

    def cut_short(self) -> None:
        """A run that was ended from outside has shown nothing."""
        self.blame("the run was ended by a signal before its time")
        self._stop.set()


def main() -> int:
    given = _arguments()
    if given.atheris:
        return _fuzz_decoding(given)
    return asyncio.run(_fuzz(given))


def _fuzz_decoding(given: argparse.Namespace) -> int:
    given.save.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        words = ["--minutes", str(given.minutes), "--save", str(given.save), "--corpus", corpus]
        code = subprocess.run([sys.executable, "-m", "benchmarks.fuzz.decoding", *words], check=False).returncode
    if not any(given.save.iterdir()):
        given.save.rmdir()
    return 1 if code else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz_frames", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="how long (default %(default)g)")
    parser.add_argument("--model", default="smollm2-instruct", metavar="REF", help="the pool's model")
    parser.add_argument("--attackers", type=int, default=6, metavar="N", help="connections at once (default 6)")
    parser.add_argument("--seed", type=int, default=int(time.time()), metavar="N", help="repeats what is sent")
    parser.add_argument("--save", type=Path, default=Path("fuzz-faults"), metavar="DIR", help="for bytes that did harm")
    parser.add_argument("--atheris", action="store_true", help="fuzz the decoder in a process of its own, with atheris")
    return parser.parse_args()


async def _fuzz(given: argparse.Namespace) -> int:
    stop, go = asyncio.Event(), asyncio.Event()
    verdict, tally, watched = Verdict(given.save, stop), Tally(), Watched()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, verdict.cut_short)
    print(f"seed {given.seed}, {given.attackers} attackers, {given.minutes:g} minutes, model {given.model}", flush=True)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cx")))
        socket = folder / "p.sock"
        process = await stack.enter_async_context(_pool(given.model, folder))
        await fill_caches(socket)
        work = [
            asyncio.create_task(watch(socket, process.pid, watched, stop, verdict.blame)),
            asyncio.create_task(behave(socket, watched, stop, verdict.blame)),
            *(
                asyncio.create_task(attack(socket, f"{given.seed}-{n}", tally, stop, verdict.blame, go))
                for n in range(given.attackers)
            ),
        ]
        over = lambda: stop.is_set() or process.returncode is not None  # noqa: E731
        await _until_the_end(given.minutes * 60, over, go, tally, watched)
        if process.returncode is not None:
            verdict.blame(f"the pool died with exit code {process.returncode}", tally.recent)
        stop.set()
        await asyncio.gather(*work)
        await _stop_pool(socket, process, verdict)
        if process.returncode:
            _show_end(folder / "pool.out")
        _look_through(folder / "pool.log", verdict)
    for fault in growth(watched.rests):
        verdict.blame(fault)
    _report(tally, watched, verdict)
    return 1 if verdict.faults else 0


def _pool(model: str, folder: Path) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """The pool as a process, ready when its socket is there."""
    command = [sys.executable, "-m", "caldrix", "pool", "--socket", str(folder / "p.sock"), "--idle-timeout", "0"]
    options = ["--load", f"{model}={MEMBER}", "--context-budget", BUDGET, "--window", "2048"]
    env = {"XDG_STATE_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(folder / "run")}

    async def ready() -> bool:
        return _there(folder / "p.sock")

    log = ["--log", str(folder / "pool.log")]
    return started([*command, *options, *log], env, folder / "pool.out", ready)


async def _until_the_end(
    seconds: float, over: Callable[[], bool], go: asyncio.Event, tally: Tally, watched: Watched
) -> None:
    """Print a line each minute until the time is over, or `over`. A long run rests after each third."""
    parts = RESTS if seconds >= RESTS * 2 * REST_S else 1
    begun = time.monotonic()
    for part in range(1, parts + 1):
        go.set()
        rest = REST_S if parts > 1 else 0.0
        await _pass_time(begun, begun + seconds * part / parts - rest, over, tally, watched)
        if rest:
            go.clear()
            await _pass_time(begun, begun + seconds * part / parts, over, tally, watched)
            if not over() and watched.samples:
                watched.rests.append(watched.samples[-1])
                print(f"at rest: {watched.rests[-1].rss / MIB:.1f} MiB", flush=True)
    go.set()


async def _pass_time(begun: float, end: float, over: Callable[[], bool], tally: Tally, watched: Watched) -> None:
    minute = int((time.monotonic() - begun) / 60)
    while (now := time.monotonic()) < end and not over():
        await asyncio.sleep(0.25)
        if int((now - begun) / 60) > minute:
            minute += 1
            _tell(minute, tally, watched)


def _tell(minute: int, tally: Tally, watched: Watched) -> None:
    if not watched.samples:
        return
    last = watched.samples[-1]
    print(
        f"minute {minute:3d}: {last.rss / MIB:7.1f} MiB, {last.descriptors} descriptors, {last.threads} threads; "
        f"{tally.frames} frames and {tally.octets / MIB:.0f} MiB sent on {tally.connections} connections; "
        f"{watched.generations} honest generations",
        flush=True,
    )


async def _stop_pool(socket: Path, process: asyncio.subprocess.Process, verdict: Verdict) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    if not await gone(process):
        verdict.blame("the pool did not stop when it was told to")
    elif process.returncode or _there(socket):
        verdict.blame(f"the pool stopped with exit code {process.returncode}; its socket is left: {_there(socket)}")


def _there(path: Path) -> bool:
    return path.exists()


def _show_end(output: Path) -> None:
    print(output.read_text("utf-8", "replace")[-3000:])


def _look_through(log: Path, verdict: Verdict) -> None:
    """Failures that no client was told of."""
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    for line in [line for line in lines if '"failure"' in line or '"connection failed"' in line][:3]:
        verdict.blame(f"the pool's log tells of a failure: {line[:600]}")


def _report(tally: Tally, watched: Watched, verdict: Verdict) -> None:
    print(f"\n{tally.frames} frames, {tally.octets / MIB:.0f} MiB, {tally.connections} connections")
    for kind, count in tally.answers.most_common():
        print(f"  {count:8d}  {kind}")
    print(f"{watched.statuses} statuses, the slowest after {watched.slowest_status_s:.2f} s")
    print(f"{watched.generations} honest generations")
    if watched.samples:
        first, last = thirds(watched.samples)
        print(f"{first / MIB:.1f} MiB in the first third and {last / MIB:.1f} in the last (medians, rests included)")
    rests = ", ".join(f"{rest.rss / MIB:.1f}" for rest in watched.rests)
    print(f"MiB at rest: {rests or 'not measured: a run of 7 minutes or more rests'}")
    print("no fault" if not verdict.faults else f"{len(verdict.faults)} faults:")
    for fault in verdict.faults:
        print(f"  {fault}")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
