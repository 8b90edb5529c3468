"""`caldrix models`: what is known, what is on this disk, and what fits this machine."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from caldrix.commands.exits import EXIT_DONE
from caldrix.commands.plain import takes_escapes, visible
from caldrix.commands.table import in_units
from caldrix.models.inventory import Model, inventory
from caldrix.models.machine import memory_limit
from caldrix.protocol.text import encodable

PIPE_COLUMNS: Final = 160
SUMMARY_FROM: Final = 100
"""Columns of a terminal from which there is room to say what a model is good for."""
LICENCE_FROM: Final = 72


def run_models(given: argparse.Namespace) -> int:
    """Gives the exit code."""
    limit = memory_limit()
    models = inventory(limit)
    if given.json:
        sys.stdout.write(json.dumps(as_json(models, limit), indent=2) + "\n")
        return EXIT_DONE
    escapes = takes_escapes(sys.stdout)
    columns = None if sys.stdout.isatty() else int(os.environ.get("COLUMNS") or PIPE_COLUMNS)
    console = Console(width=columns, color_system="auto" if escapes else None, highlight=False, emoji=False)
    console.print(table(models, console.width))
    for line in remarks(models, limit):
        console.print(Text(line))
    return EXIT_DONE


def as_json(models: Sequence[Model], limit: int) -> dict[str, Any]:
    """The same as the table, as one JSON object; sizes in bytes, the window in tokens. Pure."""
    rows = [asdict(model) | {"path": encodable(str(model.path)) if model.path else None} for model in models]
    return {"memory_limit_bytes": limit, "models": rows}


def table(models: Sequence[Model], columns: int) -> Table:
    """The models in as many columns as the terminal has room for. Pure."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    shown.add_column("model", overflow="fold")
    shown.add_column("size", justify="right", no_wrap=True)
    shown.add_column("here", no_wrap=True)
    shown.add_column("fits", no_wrap=True)
    if columns >= LICENCE_FROM:
        shown.add_column("licence", overflow="fold")
    if columns >= SUMMARY_FROM:
        shown.add_column("good for", overflow="fold")
    for model in models:
        cells = [visible(encodable(model.reference)), _size(model), "yes" if model.path else "", _fit(model)]
        cells += [model.licence or ""] if columns >= LICENCE_FROM else []
        cells += [model.summary] if columns >= SUMMARY_FROM else []
        shown.add_row(*map(Text, cells), style="bold" if model.best else None)
    return shown


def remarks(models: Sequence[Model], limit: int) -> list[str]:
    """What the columns cannot say. Pure."""
    best = next((model for model in models if model.best), None)
    how = f"fits: by an estimate from the file's size, with its prefix store, in {in_units(limit)} for all members"
    if best is None:
        return ["", how, "no model of the catalogue fits this machine"]
    what = "the strongest that fits, and it is here" if best.path else f"`caldrix pull {best.reference}` fetches it"
    return ["", how, f"best: {best.reference}, {what}"]


def _size(model: Model) -> str:
    return "" if model.size is None else in_units(model.size)


def _fit(model: Model) -> str:
    if model.best:
        return "best"
    return {None: "?", True: "yes", False: "no"}[model.fits]
