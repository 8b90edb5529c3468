"""Outputs with drafting and without: an edit inside a turn's JSON, a file rewritten in free text, and a story."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.pool import prompts
from benchmarks.pool.bench import Bench
from benchmarks.pool.caldrix_pool import Parts, ask
from benchmarks.pool.ratio import Ratio, Wanted, quotients
from benchmarks.pool.run import Run
from benchmarks.pool.texts import compared, repeated_chars
from caldrix.protocol.messages import Constraint

NAME: Final = "drafting"
GAIN: Final = Wanted("at least", 1.5)
NEVER_SLOWER: Final = Wanted("at least", 1.0)
ENOUGH_TOKENS: Final = 100
"""Of the file: a model that repeats fewer, because it is too small to copy a file, is held to NEVER_SLOWER."""


@dataclass(frozen=True)
class Case:
    """An output to be made. `source` is the file it should repeat; empty for none."""

    name: str
    parts: Parts
    tokens: int
    source: str
    constraint: Constraint | None = None


async def measure(bench: Bench) -> list[Ratio]:
    """Each repeat makes an output with drafting and without; a round before warms both."""
    return [await _measured(bench, case) for case in _cases()]


def _cases() -> list[Case]:
    edit = prompts.edit_constraint()
    return [
        Case("edit in a turn's JSON", prompts.edit_request(), 420, prompts.SAMPLE, edit),
        Case("file in free text", prompts.rewrite_request(), 240, prompts.SAMPLE),
        Case("text that repeats nothing", [("user", prompts.STORY)], 128, ""),
    ]


async def _measured(bench: Bench, case: Case) -> Ratio:
    client = (await bench.pool()).client
    drafted, plain = [], []
    for _ in range(bench.plan.repeat + 1):
        drafted.append(await ask(client, case.parts, case.tokens, case.constraint, "auto"))
        plain.append(await ask(client, case.parts, case.tokens, case.constraint, "off"))
        bench.say(f"drafting, {case.name}: {drafted[-1].rate:.1f} tok/s, without {plain[-1].rate:.1f} tok/s")
    fast, slow = [run.rate for run in drafted[1:]], [run.rate for run in plain[1:]]
    return bench.ratio(
        NAME,
        f"{case.name} against none drafted",
        quotients(fast, slow),
        {"drafted, tok/s": fast, "not drafted, tok/s": slow},
        wanted=GAIN if _repeated(case, plain[-1]) >= ENOUGH_TOKENS else NEVER_SLOWER,
        note="; ".join(_notes(case, drafted[-1], plain[-1])),
        texts={"drafted": drafted[-1].text, "not drafted": plain[-1].text},
    )


def _notes(case: Case, drafted: Run, plain: Run) -> list[str]:
    notes = [f"{drafted.accepted} of {drafted.drafted} drafted accepted", compared(drafted.text, plain.text)]
    if case.source:
        notes.append(f"about {_repeated(case, plain):.0f} of {plain.tokens} tokens repeat the file")
    return notes


def _repeated(case: Case, run: Run) -> float:
    """About how many tokens of the output stand in the file, by its share of the characters."""
    return run.tokens * repeated_chars(run.text, case.source) / max(len(run.text), 1)
