"""Figures as a Markdown page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from benchmarks.pool.ratio import Ratio, Spread, Unit, spread, verdict


def page(ratios: Sequence[Ratio], facts: Mapping[str, str]) -> str:
    """The whole page: what was measured on, a table of the figures, and one of the values behind them."""
    lines = ["# Benchmarks of the pool", "", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    lines += [
        "Each figure is the median of its repeats, with the smallest and the largest of them in brackets. "
        "Of a ratio (×) more is better, of % and µs less.",
        "",
    ]
    for model, group in groupby(ratios, lambda ratio: ratio.model):
        lines += [f"## {model}", "", *figures(list(group)), ""]
    lines += ["## Values behind the ratios", "", *behind(ratios), ""]
    return "\n".join(lines)


def figures(ratios: Iterable[Ratio]) -> list[str]:
    """The figures of one model as a table."""
    rows = [[ratio.measurement, ratio.name, *_judged(ratio)] for ratio in ratios]
    return _table(["measurement", "figure", "median (spread)", "wanted", "met", "note"], rows)


def behind(ratios: Iterable[Ratio]) -> list[str]:
    """The absolute values, as a table; they depend on the machine."""
    rows = [
        [ratio.model, ratio.measurement, ratio.name, label, number(spread(values))]
        for ratio in ratios
        for label, values in ratio.sides.items()
        if values
    ]
    return _table(["model", "measurement", "figure", "value", "median (spread)"], rows)


def figure(ratio: Ratio) -> str:
    """`21.40 × (19.80–22.10)`, or why there is none."""
    if ratio.reason:
        return f"not measured: {ratio.reason}"
    return number(spread(ratio.values), ratio.unit)


def number(seen: Spread, unit: Unit | None = None) -> str:
    """A median with its spread in brackets."""
    shown = f" {unit}" if unit else ""
    return f"{_digits(seen.middle)}{shown} ({_digits(seen.low)}–{_digits(seen.high)})"


def _judged(ratio: Ratio) -> list[str]:
    wanted = ratio.wanted.text(ratio.unit) if ratio.wanted else ""
    met = verdict(ratio.values, ratio.wanted) if ratio.wanted and not ratio.reason else ""
    return [figure(ratio), wanted, met, ratio.note]


def _digits(value: float) -> str:
    """Two decimals, or none where the number has four digits before them."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(text: str) -> str:
    """In one line, with nothing that ends a cell."""
    return " ".join(text.split()).replace("|", "\\|")
