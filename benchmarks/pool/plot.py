"""The ratios as a plot, by matplotlib where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.pool.ratio import Ratio, spread

ROW_INCHES: Final = 0.32
WIDTH_INCHES: Final = 11.0


def plotted(ratios: Sequence[Ratio]) -> list[Ratio]:
    """Those that a plot can show: measured ratios above 0."""
    return [ratio for ratio in ratios if ratio.unit == "×" and ratio.values and min(ratio.values) > 0]


def label(ratio: Ratio) -> str:
    """A row's text."""
    return f"{ratio.model}: {ratio.measurement}, {ratio.name}"


def can_plot() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(ratios: Sequence[Ratio], path: Path) -> bool:
    """An SVG of medians with their spread and the bounds, on a logarithmic axis; False when there are none."""
    shown = plotted(ratios)
    if not shown:
        return False
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    figure = Figure(figsize=(WIDTH_INCHES, 1.4 + ROW_INCHES * len(shown)), layout="constrained")
    axes: Any = figure.subplots()
    for row, ratio in enumerate(reversed(shown)):
        seen = spread(ratio.values)
        axes.hlines(row, seen.low, seen.high, color="tab:blue", linewidth=2)
        axes.plot(seen.middle, row, "o", color="tab:blue")
        if ratio.wanted:
            axes.plot(ratio.wanted.value, row, "|", color="tab:red", markersize=14, markeredgewidth=2)
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(shown)), [label(ratio) for ratio in reversed(shown)])
    axes.set_xlabel("times better (red: wanted)")
    axes.grid(axis="x", linewidth=0.3)
    figure.savefig(path, format="svg")
    return True
