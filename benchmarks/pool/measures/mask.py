"""What the mask of an agent's schema costs a token, beside the model's own time for one."""

from __future__ import annotations

from typing import Final

from benchmarks.pool import prompts
from benchmarks.pool.bare import decode, mask
from benchmarks.pool.bench import WINDOW, Bench
from benchmarks.pool.ratio import Ratio

NAME: Final = "mask"
TOKENS: Final = 32


async def measure(bench: Bench) -> list[Ratio]:
    """Each repeat walks one real turn; the values are means over its tokens."""
    threads = (await bench.pool()).member.threads
    schema, text = prompts.turn_constraint().schema_, prompts.REAL_TURN
    assert isinstance(schema, dict)
    (ids,) = await bench.ids([[("user", prompts.STORY)]])
    fills, choices, tokens = [], [], []
    for _ in bench.rounds:
        masked = await bench.child.call(mask, bench.model.path, threads, WINDOW, schema, text)
        decoded = await bench.child.call(decode, bench.model.path, threads, WINDOW, ids, TOKENS)
        fills.append(sum(masked.fill_us) / len(masked.fill_us))
        choices.append(sum(masked.argmax_us) / len(masked.argmax_us))
        tokens.append(1000 * decoded.token_ms)
    sums = [fill + choice for fill, choice in zip(fills, choices, strict=True)]
    note = f"{len(masked.fill_us)} tokens of a turn, the slowest {max(masked.fill_us):.0f} µs to fill"
    sides = {"fill, µs": fills, "argmax, µs": choices, "the model's token, µs": tokens}
    shares = [100 * one / token for one, token in zip(sums, tokens, strict=True)]
    return [
        bench.ratio(NAME, "fill and argmax of a token", sums, sides, unit="µs", note=note),
        bench.ratio(NAME, "share of the model's token", shares, {}, unit="%"),
    ]
