"""The words of `python -m benchmarks.pool`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from benchmarks.pool.measures import MEASURES
from caldrix.models.refs import resolve
from caldrix.protocol.errors import Refused

DEFAULT_MODELS: Final = ("smollm2-instruct", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
REPEAT: Final = 5
QUICK_REPEAT: Final = 2


def parse(words: list[str]) -> argparse.Namespace:
    """`models`, `only`, `repeat`, `threads`, `llama_server` and `out`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pool", description=__doc__)
    parser.description = "Measures a real caldrix pool, beside a llama-server and a bare llama.cpp loop, as ratios."
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="REF",
        help=f"paths to .gguf files or catalogue names (default: those on disk of {', '.join(DEFAULT_MODELS)})",
    )
    parser.add_argument("--only", action="append", choices=MEASURES, metavar="NAME", help=f"of {', '.join(MEASURES)}")
    parser.add_argument("--repeat", type=_count, default=None, metavar="N", help=f"repeats (default {REPEAT})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_REPEAT} repeats: a trial, not a figure")
    parser.add_argument("--threads", type=_count, metavar="N", help="of every side (default: what caldrix chooses)")
    parser.add_argument("--llama-server", type=Path, metavar="PATH", help="the program (default: the one on PATH)")
    parser.add_argument(
        "--out", type=Path, default=Path("build/benchmarks"), metavar="DIR", help="(default %(default)s)"
    )
    given = parser.parse_args(words)
    given.repeat = given.repeat or (QUICK_REPEAT if given.quick else REPEAT)
    given.only = given.only or list(MEASURES)
    return given


def model_files(references: list[str] | None) -> tuple[dict[str, Path], list[str]]:
    """Name → file, and a sentence for each default model that is not on disk.

    Raises Refused for a model that was asked for by name and is not there.
    """
    if references is not None:
        return {_name(reference): resolve(reference) for reference in references}, []
    files, missing = {}, []
    for reference in DEFAULT_MODELS:
        try:
            files[reference] = resolve(reference)
        except Refused as refused:
            missing.append(refused.message)
    return files, missing


def _name(reference: str) -> str:
    return Path(reference).name.removesuffix(".gguf")


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value
