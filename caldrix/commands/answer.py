"""A conversation on one context, each answer streamed to stdout."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass

from caldrix.client.client import PoolClient
from caldrix.commands.exits import EXIT_FAILED, Stop, say
from caldrix.commands.plain import visible
from caldrix.protocol.messages import Append, AppendEdit, Delta, Done, Json, Segment


@dataclass(frozen=True)
class Question:
    """How each prompt is answered; `stats` prints the counts and rates of each answer to stderr."""

    max_new_tokens: int
    constraint: Json | None
    stats: bool


class Chat:
    def __init__(self, client: PoolClient, member: str, question: Question) -> None:
        self._client = client
        self._member = member
        self._question = question
        self._context: str | None = None
        self._turn = 0

    async def ask(self, text: str) -> None:
        """Append the prompt and stream the answer. Raises Stop when a JSON answer was cut, CaldrixError."""
        self._turn += 1
        segment = Segment(id=f"u{self._turn}", role="user", text=text)
        if self._context is None:
            self._context = (await self._client.create(self._member, [segment])).context
        else:
            await self._client.edit(self._context, [AppendEdit(op="append", segment=segment)])
        done = await self._stream(self._context)
        if self._question.stats:
            say(stats_line(done))
        if done.finish == "length":
            self._tell_cut(done)

    async def _stream(self, context: str) -> Done:
        frames = self._client.generate(
            context,
            self._question.max_new_tokens,
            constraint=self._question.constraint,
            append=Append(id=f"a{self._turn}"),
        )
        async with contextlib.aclosing(frames):
            async for frame in frames:
                if isinstance(frame, Delta):
                    _write(frame.text)
                elif isinstance(frame, Done):
                    _write("\n")
                    return frame
        raise AssertionError("a generation ends with Done or an exception")

    def _tell_cut(self, done: Done) -> None:
        sentence = f"the answer was cut at {done.usage.completion_tokens} tokens"
        if self._question.constraint:
            raise Stop(
                EXIT_FAILED, f"{sentence}, before its JSON ended; give it more with --max-new-tokens or --window"
            )
        say(sentence)


def stats_line(done: Done) -> str:
    """The counts, times and rates of a generation. Pure."""
    usage, timing = done.usage, done.timing
    computed = usage.prompt_tokens - usage.recomputed_from
    prompt = f"prompt {usage.prompt_tokens} tokens, {computed} computed in {timing.prefill_ms} ms"
    output = f"answer {usage.completion_tokens} tokens, {usage.forced_tokens} forced, in {timing.decode_ms} ms"
    prefill, decode = _rate(computed, timing.prefill_ms), _rate(usage.completion_tokens, timing.decode_ms)
    return f"{prompt}{prefill}; {output}{decode}; {done.finish}"


def _rate(tokens: int, milliseconds: int) -> str:
    return f" ({1000 * tokens / milliseconds:.1f} tok/s)" if milliseconds and tokens else ""


def _write(text: str) -> None:
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()
