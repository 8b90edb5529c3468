"""The files of a run: the page, the raw numbers and the plot."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.pool.plot import can_plot, draw
from benchmarks.pool.ratio import Ratio
from benchmarks.pool.table import page


def write(ratios: Sequence[Ratio], facts: Mapping[str, str], out: Path) -> list[str]:
    """Write `pool.md`, `pool.json` and `pool.svg` into `out`; gives a line about each."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "pool.md").write_text(page(ratios, facts), "utf-8")
    (out / "pool.json").write_text(raw(ratios, facts), "utf-8")
    return [str(out / "pool.md"), str(out / "pool.json"), _plot(ratios, out / "pool.svg")]


def raw(ratios: Sequence[Ratio], facts: Mapping[str, str]) -> str:
    """Every value of every repeat, as JSON."""
    figures = [dataclasses.asdict(ratio) for ratio in ratios]
    return json.dumps({"facts": dict(facts), "figures": figures}, ensure_ascii=False, indent=1) + "\n"


def _plot(ratios: Sequence[Ratio], path: Path) -> str:
    if not can_plot():
        return "no plot: matplotlib is not installed"
    return str(path) if draw(ratios, path) else "no plot: there is no ratio to show"
