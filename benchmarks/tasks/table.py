"""Runs as Markdown tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from benchmarks.pool.ratio import spread
from benchmarks.tasks.record import Run, Sitting

COLUMNS: Final[Mapping[str, Callable[[Run], float | None]]] = {
    "turns": lambda run: run.figures.turns,
    "tool errors": lambda run: run.figures.errors,
    "re-asks": lambda run: run.figures.reasks,
    "tokens read": lambda run: run.figures.read,
    "written": lambda run: run.figures.written,
    "time, s": lambda run: run.seconds,
}
"""The figures of a table, each of a run."""


def by_task(runs: Sequence[Run]) -> list[str]:
    """A row for each task, in the order of their first runs: solved of tried, and medians with their spread."""
    rows = [[task, _count(own), *_figures(own), _whys(own)] for task, own in _grouped(runs, lambda run: run.task)]
    rows += [["**all**", _by_seed(runs), *_figures(runs), ""]] if runs else []
    return _table(["task", "solved", *COLUMNS, "why not"], rows)


def compared(runs: Sequence[Run]) -> list[str]:
    """Solved of tried for each task, a column for each label, and below it what the runs of a label took."""
    labels = [label for label, _ in _grouped(runs, lambda run: run.label)]
    rows = [
        [task, *(_count([run for run in own if run.label == label]) for label in labels)]
        for task, own in _grouped(runs, lambda run: run.task)
    ]
    of_label = [[run for run in runs if run.label == label] for label in labels]
    rows.append(["**all**", *(_count(own) for own in of_label)])
    rows.append(["solved in a seed", *(_by_seed(own) for own in of_label)])
    for name, figure in COLUMNS.items():
        rows.append([f"{name}, of a run", *(_middle(figure, own) for own in of_label)])
    return _table(["task", *labels], rows)


def conditions(sittings: Iterable[Sitting]) -> list[str]:
    """What each label's runs were made with."""
    return [
        f"- {one.label}: {one.agent}; " + "; ".join(f"{name} {value}" for name, value in one.facts.items())
        for one in sittings
    ]


def told(run: Run) -> str:
    """A run in one line, for whoever waits."""
    end = "solved" if run.solved else f"not solved: {run.why}"
    ended = "" if run.outcome == "final" else f" [{run.outcome}{': ' + run.reason if run.reason else ''}]"
    figures = run.figures
    took = f"{figures.turns} turns, {figures.errors} tool errors, {figures.reasks} re-asks, {run.seconds:.0f} s"
    return f"{run.label}: {run.task}, seed {run.seed}: {end}{ended} ({took})"


def traced(run: Run) -> list[str]:
    """A run and its turns, for whoever looks for the one that went wrong."""
    return [told(run), *(f"    {line}" for line in run.trace)]


def _grouped(runs: Sequence[Run], key: Callable[[Run], str]) -> list[tuple[str, list[Run]]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return list(groups.items())


def _count(runs: Sequence[Run]) -> str:
    return f"{sum(run.solved for run in runs)}/{len(runs)}" if runs else "–"


def _by_seed(runs: Sequence[Run]) -> str:
    """The median of what one seed solved, with the smallest and the largest, of as many tasks as it tried."""
    seeds: dict[int, list[Run]] = {}
    for run in runs:
        seeds.setdefault(run.seed, []).append(run)
    if not seeds:
        return "–"
    tried = sorted({len(own) for own in seeds.values()})
    of = f"{tried[0]}–{tried[-1]}" if len(tried) > 1 else str(tried[0])
    return f"{_shown([float(sum(run.solved for run in own)) for own in seeds.values()])} of {of}"


def _figures(runs: Sequence[Run]) -> list[str]:
    return [_middle(figure, runs) for figure in COLUMNS.values()]


def _middle(figure: Callable[[Run], float | None], runs: Sequence[Run]) -> str:
    values = [value for run in runs if (value := figure(run)) is not None]
    return _shown(values) if values else "–"


def _shown(values: Sequence[float]) -> str:
    """A median, and where the values differ their smallest and largest in brackets."""
    seen = spread([float(value) for value in values])
    if seen.low == seen.high:
        return _digits(seen.middle)
    return f"{_digits(seen.middle)} ({_digits(seen.low)}–{_digits(seen.high)})"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value == round(value) or value >= 100 else f"{value:.1f}"


def _whys(runs: Sequence[Run]) -> str:
    """Each reason once, with how often it was it where it was it more than once."""
    counts: dict[str, int] = {}
    for run in runs:
        if not run.solved:
            why = run.why if run.outcome == "final" else f"{run.why} [{run.outcome}]"
            counts[why] = counts.get(why, 0) + 1
    return "; ".join(why if count == 1 else f"{count} × {why}" for why, count in counts.items())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"
