"""A generation's counts, times and rates as one line. Pure."""

from __future__ import annotations

from caldrix.protocol.messages import Done, Usage


def stats_line(done: Done, first_ms: int | None = None) -> str:
    """What a generation cost; `first_ms` is when its first text came, in milliseconds after it was asked."""
    usage, timing = done.usage, done.timing
    computed = usage.prompt_tokens - usage.recomputed_from
    answer = f"answer {_counts(usage)} in {timing.decode_ms} ms{_rate(usage.completion_tokens, timing.decode_ms)}"
    first = [] if first_ms is None else [f"first token after {first_ms} ms"]
    resumed = f"resumed at row {usage.recomputed_from}" if usage.recomputed_from else "read from its start"
    work = f"{computed} computed in {timing.prefill_ms} ms{_rate(computed, timing.prefill_ms)}"
    prompt = f"prompt {usage.prompt_tokens} tokens, {resumed}, {work}"
    return "; ".join([answer, *first, prompt, done.finish])


def _counts(usage: Usage) -> str:
    drafted = f", {usage.drafted_tokens} drafted, {usage.accepted_tokens} accepted" if usage.drafted_tokens else ""
    return f"{usage.completion_tokens} tokens, {usage.forced_tokens} forced{drafted},"


def _rate(tokens: int, milliseconds: int) -> str:
    return f" ({1000 * tokens / milliseconds:.1f} tok/s)" if milliseconds and tokens else ""
