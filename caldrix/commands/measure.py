"""What a model does when it is asked: a constraint, a resumed prompt, its speed. Over a pool and a bare engine alike.

Each trial is a record, a flat map with the name of the trial under `trial`, so that a child process can print it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from caldrix.protocol.messages import Constraint, Finish, Json, Segment, Timing, Usage

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 20}, "sure": {"type": "boolean"}},
    "required": ["answer", "sure"],
    "additionalProperties": False,
}
CONSTRAINED_TOKENS: Final = 120
PREFIX_LINES: Final = 60
PREFIX_WINDOW_SHARE: Final = 2
LINE_TOKENS: Final = 12
"""About what a line of the long prompt takes, generously."""
DECODED: Final = 24


@dataclass(frozen=True)
class Timed:
    """One generation's counts, and its times in ms."""

    text: str
    finish: Finish
    prompt: int
    resumed: int
    completion: int
    prefill_ms: int
    decode_ms: int

    def prefill_rate(self) -> float | None:
        """Rows a second; None where it was too quick to be timed."""
        return 1000 * (self.prompt - self.resumed) / self.prefill_ms if self.prefill_ms else None

    def decode_rate(self) -> float | None:
        return 1000 * self.completion / self.decode_ms if self.decode_ms and self.completion else None


Ask = Callable[[list[Segment], Constraint | None, int], Awaitable[Timed]]
"""Generate after these segments, under the constraint, at most so many tokens. Raises Refused."""


def timed(text: str, finish: Finish, usage: Usage, timing: Timing) -> Timed:
    return Timed(
        text,
        finish,
        usage.prompt_tokens,
        usage.recomputed_from,
        usage.completion_tokens,
        timing.prefill_ms,
        timing.decode_ms,
    )


async def trials(ask: Ask, window: int) -> AsyncIterator[dict[str, Any]]:
    """The records of all trials, each as it ends."""
    yield await try_constraint(ask)
    yield await try_prefix(ask, window)


async def try_constraint(ask: Ask) -> dict[str, Any]:
    started = time.monotonic()
    question = [Segment(id="u", role="user", text="Is the sky blue? Answer as JSON.")]
    answer = await ask(question, Json(kind="Json", schema_=SCHEMA), CONSTRAINED_TOKENS)
    took_ms = int(1000 * (time.monotonic() - started))
    return {"trial": "constraint", "text": answer.text, "finish": answer.finish, "took_ms": took_ms}


async def try_prefix(ask: Ask, window: int) -> dict[str, Any]:
    """A long prompt that nobody asked before, then another question after the same beginning."""
    lines = max(4, min(PREFIX_LINES, window // PREFIX_WINDOW_SHARE // LINE_TOKENS))
    system = Segment(id="s", role="system", text=long_text(lines, secrets.token_hex(4)))
    cold, warm = [
        await ask([system, Segment(id="u", role="user", text=question)], None, 1)
        for question in ("Which number comes first?", "How many lines are there?")
    ]
    return {"trial": "prefix", "cold": asdict(cold), "warm": asdict(warm)}


async def try_speed(ask: Ask, threads: int) -> dict[str, Any]:
    """The rates of reading a prompt and of writing an answer, on so many threads."""
    prompt = [Segment(id="u", role="user", text=long_text(PREFIX_LINES // 3, secrets.token_hex(4)))]
    answer = await ask(prompt, None, DECODED)
    return {"trial": "speed", "threads": threads, "prefill": answer.prefill_rate(), "decode": answer.decode_rate()}


def long_text(lines: int, mark: str) -> str:
    """Text that begins with `mark`, so that no stored prefix serves it. Pure."""
    return f"Notes {mark}.\n" + "\n".join(f"Line {number} says {number * 7 % 90}." for number in range(lines))
