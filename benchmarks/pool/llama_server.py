"""A llama-server beside the pool: found, started on a loopback port, asked over HTTP, timed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from benchmarks.pool.errors import NotMeasured
from benchmarks.pool.process import free_port, made, started
from benchmarks.pool.run import MILLISECONDS, Run
from benchmarks.pool.texts import Arrival

ANSWER_SECONDS: Final = 600.0
FIRST_WORDS: Final = 300
_DATA: Final = "data: "


@dataclass(frozen=True)
class Build:
    """How a llama-server is started, and what it says of itself."""

    command: tuple[str, ...]
    version: str


@dataclass(frozen=True)
class LlamaServer:
    """One that runs. `slots` generations at a time."""

    http: httpx2.AsyncClient
    slots: int


async def find_build(given: Path | None) -> Build:
    """The given program, or `llama-server` on PATH, or the server in the package xllamacpp.

    Raises NotMeasured when there is none of them.
    """
    found = str(given) if given else shutil.which("llama-server")
    if found:
        return Build((found,), await _version(found))
    if importlib.util.find_spec("xllamacpp"):
        version = f"xllamacpp {importlib.metadata.version('xllamacpp')}, another build of llama.cpp than caldrix's"
        return Build((sys.executable, "-m", "benchmarks.pool.xllama_server"), version)
    raise NotMeasured("there is no llama-server: give --llama-server PATH, or install the package xllamacpp")


@contextlib.asynccontextmanager
async def server_process(
    build: Build, model: Path, folder: Path, threads: int, window: int, slots: int
) -> AsyncIterator[LlamaServer]:
    """A server of `slots` slots of `window` tokens each, ended on leaving. Raises NotMeasured if it does not start."""
    made(folder)
    port = free_port()
    numbers = ["-t", str(threads), "-tb", str(threads), "-c", str(window * slots), "-np", str(slots)]
    command = [*build.command, "-m", str(model), *numbers, "--host", "127.0.0.1", "--port", str(port)]
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=ANSWER_SECONDS, trust_env=False) as http:

        async def ready() -> bool:
            try:
                return (await http.get("/health")).status_code == httpx2.codes.OK
            except httpx2.TransportError:
                return False

        async with started(command, {}, folder / f"llama-server-{slots}.out", ready):
            yield LlamaServer(http, slots)


async def complete(
    server: LlamaServer,
    ids: Sequence[int],
    tokens: int,
    schema: Mapping[str, Any] | None = None,
    ignore_end: bool = False,
) -> Run:
    """One greedy generation after the prompt `ids`. Raises NotMeasured with the server's words when it refuses."""
    body: dict[str, Any] = {
        "prompt": list(ids),
        "n_predict": tokens,
        "temperature": 0,
        "cache_prompt": True,
        "stream": True,
        "ignore_eos": ignore_end,
    }
    if schema is not None:
        body["json_schema"] = schema
    start = time.perf_counter()
    arrivals: list[Arrival] = []
    first, last = 0, {}
    async with server.http.stream("POST", "/completion", json=body) as answer:
        if answer.status_code != httpx2.codes.OK:
            raise NotMeasured(
                f"llama-server refused: {(await answer.aread()).decode('utf-8', 'replace')[:FIRST_WORDS]}"
            )
        async for line in answer.aiter_lines():
            if not line.startswith(_DATA):
                continue
            last = json.loads(line.removeprefix(_DATA))
            if last.get("content"):
                first = first or len(last.get("tokens") or (0,))
                arrivals.append(Arrival(time.perf_counter(), last["content"]))
    return _run(start, time.perf_counter(), arrivals, first, last)


def _run(start: float, end: float, arrivals: list[Arrival], first: int, last: Mapping[str, Any]) -> Run:
    timings = last.get("timings")
    if timings is None or not arrivals:
        raise NotMeasured(f"llama-server ended without an answer: {json.dumps(last)[:FIRST_WORDS]}")
    return Run(
        text="".join(arrival.text for arrival in arrivals),
        tokens=timings["predicted_n"],
        prompt_tokens=timings["cache_n"] + timings["prompt_n"],
        started=start,
        ended=end,
        arrivals=tuple(arrivals),
        first_tokens=first,
        decode_s=timings["predicted_ms"] / MILLISECONDS,
        resumed=timings["cache_n"],
    )


async def _version(program: str) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            program, "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except OSError as error:
        raise NotMeasured(f"{program} cannot be started: {error.strerror}") from error
    out, _ = await process.communicate()
    lines = [line for line in out.decode("utf-8", "replace").split("\n") if line.startswith(("version", "built"))]
    return f"llama-server, {', '.join(lines) or 'of a version it does not tell'}"
