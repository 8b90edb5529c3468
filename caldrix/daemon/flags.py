"""Serving flags as words: of `caldrix pool`, of `caldrix run` and of a MemberLoad request alike."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from caldrix.engine.api import DEFAULT_MAX_BATCH, MAX_BATCH_LIMIT, ServingFlags
from caldrix.protocol.errors import Refused

MAX_THREADS = 512
"""The engine's library ends the process when it is asked for more."""
SUFFIXES = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def count(text: str) -> int:
    """A whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def threads(text: str) -> int:
    """A whole number from 1 to MAX_THREADS."""
    value = count(text)
    if value > MAX_THREADS:
        raise argparse.ArgumentTypeError(f"{value} is more than {MAX_THREADS}")
    return value


def batch(text: str) -> int:
    """A whole number from 1 to MAX_BATCH_LIMIT."""
    value = count(text)
    if value > MAX_BATCH_LIMIT:
        raise argparse.ArgumentTypeError(f"{value} is more than {MAX_BATCH_LIMIT}")
    return value


def size(text: str) -> int:
    """Bytes: a whole number, with K, M, G or T (binary) behind it or not."""
    number, unit = (text[:-1], text[-1].lower()) if text[-1:].lower() in SUFFIXES else (text, "")
    value = int(number) * SUFFIXES.get(unit, 1)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return value


def add_serving_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that say how a member is served; each is None when it is not given."""
    parser.add_argument("--window", type=count, metavar="N", help="context window in tokens")
    parser.add_argument("--threads", type=threads, metavar="N", help="threads of a member")
    parser.add_argument("--context-budget", type=size, metavar="BYTES", help="memory for stored prefixes; 0 keeps none")
    parser.add_argument("--memory-limit", type=size, metavar="BYTES", help="memory of all members together")
    parser.add_argument(
        "--max-batch",
        type=batch,
        metavar="N",
        help=f"generations of a member that decode together (default {DEFAULT_MAX_BATCH}); 1: one by one",
    )
    parser.add_argument(
        "--store-dir", type=Path, metavar="DIR", help="keep computed prefixes in DIR, so that a restarted pool has them"
    )


def overlay(base: ServingFlags, given: argparse.Namespace) -> ServingFlags:
    """`base` with the flags that were given."""
    names = ("window", "threads", "context_budget", "memory_limit", "max_batch", "store_dir")
    return replace(base, **{name: getattr(given, name) for name in names if getattr(given, name) is not None})


def parse_flags(words: Sequence[str], base: ServingFlags) -> ServingFlags:
    """The flags of a MemberLoad over the pool's own; its memory limit can be lowered, not raised.

    Raises Refused("bad_request") with what is wrong.
    """
    parser = _Parser(prog="flags", add_help=False, allow_abbrev=False)
    add_serving_flags(parser)
    flags = overlay(base, parser.parse_args(list(words)))
    limits = [limit for limit in (base.memory_limit, flags.memory_limit) if limit is not None]
    return replace(flags, memory_limit=min(limits, default=None))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused("bad_request", f"flags: {message}.")
