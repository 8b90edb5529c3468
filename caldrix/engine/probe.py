"""The precheck: a child process that really decodes a few tokens with the settings to be used.

It renders the model's chat template, too: a template is a program that came with the model, and may loop or grow for
ever. An illegal instruction or an abort in native code kills the child, not the pool. Where a model dies with repacked
kernels it is tried once more without them, and says so. A verdict is remembered by file and by build of the library.
Run as a program it is that child: `python -m caldrix.engine.probe PATH THREADS REPACK`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import psutil
from platformdirs import user_cache_path

from caldrix.engine.backend import Backend, EngineFailed, Row
from caldrix.engine.strategy import open_template
from caldrix.protocol.errors import Refused

PROBE_TIMEOUT_S: Final = 300
PROBE_WINDOW: Final = 512
TEMPLATE_SECONDS: Final = 20
TEMPLATE_BYTES: Final = 1 << 30
PROBE_TEXT: Final = "A quick check that this processor runs the model: one, two, three, four, five, six, seven, eight."
THE_FILES_FAULT: Final = 3
"""The child's exit code where other kernels would not help: the file cannot be loaded, or its template served."""
CANNOT_LOAD: Final = "llama.cpp cannot load"
_NOISE: Final = re.compile(r"failed to (load model|read tensor)|see the pool's log")
_SPEAKER: Final = re.compile(r"^(llama\.cpp|\w+|error loading model( \w+)?): ")
REBUILD_HINT: Final = "rebuild llama-cpp-python for this processor without AMX (./run does) for full speed"


@dataclass(frozen=True)
class Verdict:
    """How the model can be opened; `notes` say what was lost."""

    repack: bool
    notes: tuple[str, ...] = ()


def probe(path: Path, threads: int) -> Verdict:
    """The way this model runs here. Raises Refused("model_refused") when it runs in none. Blocks for seconds."""
    remembered = _remembered_file(path)
    try:
        return _read(remembered)
    except (OSError, ValueError, TypeError, KeyError):
        verdict = _try_out(path, threads)
        _write(remembered, verdict)
        return verdict


def _try_out(path: Path, threads: int) -> Verdict:
    failure = _run_child(path, threads, repack=True)
    if failure is None:
        return Verdict(repack=True)
    again = failure if failure.final else _run_child(path, threads, repack=False)
    if again is None:
        note = f"loaded without repacked kernels, 2 to 3 times slower: with them it {failure.what}; {REBUILD_HINT}"
        return Verdict(False, (note,))
    raise Refused("model_refused", f"{path} cannot be used here: a test in a child process {again.what}")


@dataclass(frozen=True)
class _Failure:
    """What happened to a child, as the end of a sentence. `final`: without repacked kernels it would be the same."""

    what: str
    final: bool = False


def _run_child(path: Path, threads: int, *, repack: bool) -> _Failure | None:
    """None when the child decoded."""
    command = [sys.executable, "-m", "caldrix.engine.probe", os.fspath(path), str(threads), str(int(repack))]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return _Failure(f"did not decode within {PROBE_TIMEOUT_S} s")
    if done.returncode == 0:
        return None
    if done.returncode == -signal.SIGALRM:
        return _Failure(f"did not render the model's chat template within {TEMPLATE_SECONDS} s", final=True)
    if done.returncode < 0:
        return _Failure(f"was ended by {signal.Signals(-done.returncode).name}")
    lines = done.stderr.decode("utf-8", "replace").strip().split("\n")
    return _Failure(f"failed: {reason(lines)}", final=done.returncode == THE_FILES_FAULT)


def reason(lines: Sequence[str]) -> str:
    """Of what a child wrote, the lines that say why, without the names of functions; the last line if none does."""
    telling = [line for line in lines if not _NOISE.search(line)] or lines[-1:]
    told = "; ".join(_without_speakers(line) for line in telling[-2:])[-600:]
    return f"llama.cpp cannot load it: {told}" if any(CANNOT_LOAD in line for line in lines) else told


def _without_speakers(line: str) -> str:
    while match := _SPEAKER.match(line):
        line = line[match.end() :]
    return line


def _remembered_file(path: Path) -> Path:
    facts = path.stat()
    key = json.dumps([os.fspath(path), facts.st_size, facts.st_mtime_ns, library_build()])
    return user_cache_path("caldrix") / "probes" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"


def library_build() -> list[tuple[str, int, int]]:
    """What tells one build of the engine's library from another: name, size and time of its files."""
    spec = importlib.util.find_spec("llama_cpp")
    library = Path(spec.origin).parent / "lib" if spec and spec.origin else Path()
    return sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in library.glob("*"))


def _read(file: Path) -> Verdict:
    value = json.loads(file.read_text())
    return Verdict(bool(value["repack"]), tuple(str(note) for note in value["notes"]))


def _write(file: Path, verdict: Verdict) -> None:
    """Best effort: a verdict that cannot be kept is found again at the next start."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"repack": verdict.repack, "notes": list(verdict.notes)}))
        draft.replace(file)
    except OSError:
        return


def try_template(source: str | None, bos: str, eos: str) -> None:
    """Render a template's probes under limits: raises MemoryError past TEMPLATE_BYTES; past TEMPLATE_SECONDS SIGALRM
    ends the process. Only for a process that ends soon: its limits stay."""
    roof = psutil.Process().memory_info().vms + TEMPLATE_BYTES
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (roof if hard == resource.RLIM_INFINITY else min(roof, hard), hard))
    signal.alarm(TEMPLATE_SECONDS)
    open_template(source, bos, eos)
    signal.alarm(0)


def _child(path: str, threads: str, repack: str) -> int:
    from caldrix.engine.llama import OpenOptions, opened

    loaded = False
    try:
        with opened(Path(path), OpenOptions(int(threads), PROBE_WINDOW, bool(int(repack)))) as backend:
            loaded = True
            _decode_some(backend)
            try_template(backend.facts.template, backend.vocabulary.bos_text, backend.vocabulary.eos_text)
    except EngineFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1 if loaded else THE_FILES_FAULT
    except MemoryError:
        sys.stderr.write(f"the model's chat template takes more than {TEMPLATE_BYTES >> 30} GiB of memory\n")
        return THE_FILES_FAULT
    return 0


def _decode_some(backend: Backend) -> None:
    """A pass of many rows and one of a single row. Raises EngineFailed."""
    ids = backend.tokenize(PROBE_TEXT)
    last = len(ids) - 1
    for rows in (
        [Row(token, place, 0, place == last) for place, token in enumerate(ids)],
        [Row(ids[-1], last + 1, 0, True)],
    ):
        if np.isnan(backend.decode(rows)).any():
            raise EngineFailed("the model's logits are no numbers: its weights are damaged, or a kernel is wrong")


if __name__ == "__main__":
    sys.exit(_child(*sys.argv[1:]))
