"""A turn of an agent with twelve tools under its schema, beside llama-server's JSON-schema mode and beside no mask."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.pool import prompts
from benchmarks.pool.bench import Bench
from benchmarks.pool.caldrix_pool import ask
from benchmarks.pool.ratio import Ratio, Wanted, quotients
from benchmarks.pool.run import Run
from benchmarks.pool.texts import common_prefix, compared, seconds_until
from benchmarks.pool.theirs import Theirs, theirs_for

NAME: Final = "turn of 12 tools"
TURN_TOKENS: Final = 160
SAME_TEXT_CHARS: Final = 40
"""The least that both must have written alike for a comparison over the same text."""
NOT_SLOWER: Final = Wanted("at least", 1.0)
AHEAD: Final = Wanted("at least", 1.3)


async def measure(bench: Bench) -> list[Ratio]:
    """A round before warms all sides; then each repeat asks caldrix, the llama-server and caldrix unconstrained."""
    schema = _schema()
    theirs = await theirs_for(bench, [prompts.agent(prompts.TURN_REQUEST)])
    turns, free = [], []
    for _ in range(bench.plan.repeat + 1):
        turns.append(await _turn(bench))
        await theirs.ask(0, TURN_TOKENS, schema)
        free.append(await _free(bench, turns[-1].tokens))
        bench.say(f"turn: {turns[-1].rate:.1f} tok/s, unconstrained {free[-1].rate:.1f} tok/s")
    turns, free, theirs.runs = turns[1:], free[1:], theirs.runs[1:]
    return [_against_free(bench, turns, free), *_against_theirs(theirs, turns)]


async def _turn(bench: Bench) -> Run:
    client = (await bench.pool()).client
    return await ask(client, prompts.agent(prompts.TURN_REQUEST), TURN_TOKENS, prompts.turn_constraint())


async def _free(bench: Bench, tokens: int) -> Run:
    """As many tokens after the same beginning, one by one, of an answer that does not end before."""
    client = (await bench.pool()).client
    return await ask(client, prompts.agent(prompts.LONG_ANSWER), tokens, draft="off")


def _against_free(bench: Bench, turns: list[Run], free: list[Run]) -> Ratio:
    return bench.ratio(
        NAME,
        "under its schema against unconstrained",
        quotients(_rates(turns), _rates(free)),
        {"turn, tok/s": _rates(turns), "unconstrained, tok/s": _rates(free)},
        wanted=NOT_SLOWER,
        note=f"{turns[0].tokens} tokens, {turns[0].forced} forced, {turns[0].accepted} of {turns[0].drafted} drafted "
        f"accepted; unconstrained {free[0].tokens} tokens",
        texts={"turn": turns[-1].text, "unconstrained": free[-1].text},
    )


def _against_theirs(theirs: Theirs, turns: list[Run]) -> list[Ratio]:
    bench = theirs.bench
    names = [f"{what} against llama-server's JSON schema" for what in ("decode", "whole call", "decode, own clocks")]
    same = "the same text against llama-server's JSON schema"
    if theirs.reason is not None:
        wanted = (AHEAD, None, None)
        missing = [bench.missing(NAME, name, theirs.reason, wanted=w) for name, w in zip(names, wanted, strict=True)]
        return [*missing, bench.missing(NAME, same, theirs.reason)]
    runs = theirs.runs
    sides = [
        ("tok/s", _rates(turns), _rates(runs), AHEAD),
        ("tok/s", [run.tokens / run.wall_s for run in turns], [run.tokens / run.wall_s for run in runs], None),
        ("tok/s", [run.own_rate for run in turns], [run.own_rate for run in runs], None),
    ]
    note = f"{compared(turns[0].text, runs[0].text)}; llama-server {runs[0].tokens} tokens"
    found = [
        bench.ratio(
            NAME,
            name,
            quotients(ours, others),
            {f"caldrix, {unit}": ours, f"llama-server, {unit}": others},
            wanted=wanted,
            note=note,
            texts={"llama-server": runs[-1].text},
        )
        for name, (unit, ours, others, wanted) in zip(names, sides, strict=True)
    ]
    return [*found, _same_text(bench, same, turns, runs)]


def _same_text(bench: Bench, name: str, turns: list[Run], runs: list[Run]) -> Ratio:
    """How much sooner the text that both begin with was there, from its first piece on."""
    chars = min(common_prefix(one.text, other.text) for one, other in zip(turns, runs, strict=True))
    if chars < SAME_TEXT_CHARS:
        return bench.missing(NAME, name, f"the texts part after {chars} characters")
    ours = [seconds_until(run.arrivals, chars) for run in turns]
    others = [seconds_until(run.arrivals, chars) for run in runs]
    sides = {"caldrix, s": ours, "llama-server, s": others}
    return bench.ratio(NAME, name, quotients(others, ours), sides, note=f"over {chars} characters")


def _rates(runs: list[Run]) -> list[float]:
    return [run.rate for run in runs]


def _schema() -> dict[str, Any]:
    schema = prompts.turn_constraint().schema_
    assert isinstance(schema, dict)
    return schema
