"""Time to the first token of an agent's prompt of about 2,000 tokens: cold, warm, and after a restart of the pool."""

from __future__ import annotations

import secrets
from typing import Final

from benchmarks.pool import prompts
from benchmarks.pool.bench import Bench
from benchmarks.pool.caldrix_pool import Parts, ask, create, pool_process
from benchmarks.pool.ratio import Ratio, Wanted, quotients
from benchmarks.pool.run import Run
from benchmarks.pool.theirs import Theirs, theirs_for

NAME: Final = "first token"
PROMPT_TOKENS: Final = 2000
ANSWER_TOKENS: Final = 4
GUESS_CHARS: Final = 6000
WARM: Final = Wanted("at least", 20)
RESTARTED: Final = Wanted("at least", 10)


async def measure(bench: Bench) -> list[Ratio]:
    """Every repeat has a beginning of its own, so that it is cold; the same with another question is warm."""
    chars = await _chars(bench)
    pairs = [_pair(chars) for _ in bench.rounds]
    return [*await _warm(bench, pairs), await _restarted(bench, chars)]


async def _warm(bench: Bench, pairs: list[tuple[Parts, Parts]]) -> list[Ratio]:
    client = (await bench.pool()).client
    theirs = await theirs_for(bench, [parts for pair in pairs for parts in pair])
    cold, warm = [], []
    for number, (first, second) in enumerate(pairs):
        cold.append(await ask(client, first, ANSWER_TOKENS))
        await theirs.ask(2 * number, ANSWER_TOKENS)
        warm.append(await ask(client, second, ANSWER_TOKENS))
        await theirs.ask(2 * number + 1, ANSWER_TOKENS)
        bench.say(f"first token: cold {cold[-1].first_s:.2f} s, warm {warm[-1].first_s:.3f} s")
    ours = bench.ratio(
        NAME,
        "warm against cold",
        quotients(_first(cold), _first(warm)),
        {"cold, s": _first(cold), "warm, s": _first(warm)},
        wanted=WARM,
        note=_resumed(warm),
    )
    return [ours, _against(theirs, "cold", cold, theirs.runs[::2]), _against(theirs, "warm", warm, theirs.runs[1::2])]


def _against(theirs: Theirs, label: str, ours: list[Run], runs: list[Run]) -> Ratio:
    name = f"{label} against llama-server"
    if theirs.reason is not None:
        return theirs.bench.missing(NAME, name, theirs.reason)
    sides = {"caldrix, s": _first(ours), "llama-server, s": _first(runs)}
    note = f"llama-server {_resumed(runs)}"
    return theirs.bench.ratio(NAME, name, quotients(_first(runs), _first(ours)), sides, note=note)


async def _restarted(bench: Bench, chars: int) -> Ratio:
    """Cold and warm once, so that the beginning is worth keeping; then the first request of a new pool."""
    flags = [*bench.flags, "--store-dir", str(bench.plan.folder / "store")]
    cold, after = [], []
    for _ in bench.rounds:
        first, second = _pair(chars)
        async with pool_process(bench.model.path, bench.plan.folder / "restarted", flags) as pool:
            cold.append(await ask(pool.client, first, ANSWER_TOKENS))
            await ask(pool.client, second, ANSWER_TOKENS)
        async with pool_process(bench.model.path, bench.plan.folder / "restarted", flags) as pool:
            after.append(await ask(pool.client, second, ANSWER_TOKENS))
        bench.say(f"first token: cold {cold[-1].first_s:.2f} s, after a restart {after[-1].first_s:.3f} s")
    return bench.ratio(
        NAME,
        "after a restart against cold",
        quotients(_first(cold), _first(after)),
        {"cold, s": _first(cold), "after a restart, s": _first(after)},
        wanted=RESTARTED,
        note=_resumed(after),
    )


async def _chars(bench: Bench) -> int:
    """How much instruction text brings the prompt to about PROMPT_TOKENS, by the pool's own count."""
    client = (await bench.pool()).client
    counts = []
    for chars in (0, GUESS_CHARS):
        info = await create(client, prompts.agent(prompts.QUESTIONS[0], prompts.instruction_text(chars)))
        counts.append(info.tokens)
        await client.drop(info.context)
    missing = PROMPT_TOKENS - counts[0]
    return max(0, GUESS_CHARS * missing // (counts[1] - counts[0]))


def _pair(chars: int) -> tuple[Parts, Parts]:
    """Two prompts of one beginning that no other prompt has."""
    mark, text = f"Session {secrets.token_hex(8)}.", prompts.instruction_text(chars)
    first, second = (prompts.agent(question, text, mark) for question in prompts.QUESTIONS)
    return first, second


def _first(runs: list[Run]) -> list[float]:
    return [run.first_s for run in runs]


def _resumed(runs: list[Run]) -> str:
    return f"resumed at row {runs[-1].resumed} of {runs[-1].prompt_tokens}"
