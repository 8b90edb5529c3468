"""`python -m benchmarks.pool`: every measurement of every model, and the files of the run."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.pool import facts
from benchmarks.pool.arguments import model_files, parse
from benchmarks.pool.bench import Bench, Model, Plan
from benchmarks.pool.errors import NotMeasured
from benchmarks.pool.llama_server import Build, find_build
from benchmarks.pool.measures import MEASURES
from benchmarks.pool.ratio import Ratio
from benchmarks.pool.report import write
from benchmarks.pool.table import figure
from caldrix.protocol.errors import CaldrixError, Refused

log = logging.getLogger("benchmarks")


def main() -> int:
    """0 when every measurement was made to its end, with whatever figures."""
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    given = parse(sys.argv[1:])
    try:
        files, missing = model_files(given.models)
    except Refused as refused:
        print(refused.message, file=sys.stderr)
        return 1
    for sentence in missing:
        print(f"left out: {sentence}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="cb") as folder:
        return asyncio.run(_run(given, [Model(name, path) for name, path in files.items()], Path(folder)))


async def _run(given: argparse.Namespace, models: Sequence[Model], folder: Path) -> int:
    build = await _build(given.llama_server)
    known = {
        "machine": facts.machine(),
        "versions": facts.versions(),
        "llama-server": build.version if isinstance(build, Build) else str(build),
        "repeats": str(given.repeat),
        "thread library settings": facts.settings(),
        "load before": facts.load(),
    }
    ratios: list[Ratio] = []
    broken = False
    for number, model in enumerate(models):
        bench = Bench(Plan(given.repeat, given.threads, folder / str(number), build, _say), model)
        try:
            for name in given.only:
                found, whole = await _measured(bench, name)
                ratios += found
                broken |= not whole
                written = write(ratios, {**known, "load after": facts.load()}, given.out)
                _tell(found)
        finally:
            await bench.close()
    print("\n".join(written) if ratios else "nothing was measured: there is no model")
    return int(broken or not ratios)


async def _measured(bench: Bench, name: str) -> tuple[list[Ratio], bool]:
    """A measurement's figures; one that breaks off is a figure with its reason, and the others go on."""
    try:
        return await MEASURES[name](bench), True
    except (NotMeasured, CaldrixError, ValueError) as reason:
        log.warning("%s of %s broke off", name, bench.model.name, exc_info=not isinstance(reason, NotMeasured))
        return [bench.missing(name, name, reason)], False


async def _build(given: Path | None) -> Build | NotMeasured:
    try:
        return await find_build(given)
    except NotMeasured as reason:
        return reason


def _tell(ratios: Sequence[Ratio]) -> None:
    for ratio in ratios:
        print(f"{ratio.model}: {ratio.measurement}, {ratio.name}: {figure(ratio)}  [{ratio.note}]", flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
