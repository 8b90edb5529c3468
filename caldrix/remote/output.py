"""What a remote generation gave so far: chunks go in, deltas come out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from caldrix.engine.jobs import Finished, Job, TextDelta
from caldrix.protocol.messages import Choice, Finish, TokenLogprob, Usage
from caldrix.remote.dialect import Chunk
from caldrix.remote.jsontext import JsonStyle


class WholeText:
    """Joins what a server cut in the middle of a surrogate pair, as a JSON escape may; half of one alone is `�`."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str, *, last: bool = False) -> str:
        text, self._held = self._held + text, ""
        if not last and text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass
class Output:
    """`style` rewrites the text as it comes; `held` keeps the deltas back until `release`, so that a text may be
    thrown away and asked for again. Usage counts every try."""

    job: Job
    style: JsonStyle | None = None
    held: bool = False
    finish: Finish | None = None
    raw: str = ""
    text: str = ""
    ids: list[int] | None = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    choice: Choice | None = None
    cached: int | None = None
    started: float = field(default_factory=time.monotonic)
    first: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    end_tokens: int = 0
    earlier_tokens: int = 0
    _whole: WholeText = field(default_factory=WholeText)
    _unsaid: int = 0
    _said: int = 0

    def add(self, chunk: Chunk) -> Iterator[TextDelta]:
        """The deltas that a chunk gives."""
        if self.first is None and (chunk.text or chunk.ids):
            self.first = time.monotonic()
        self._take_ids(chunk)
        self.finish = chunk.finish or self.finish
        if chunk.completion_tokens is not None:
            self.completion_tokens = chunk.completion_tokens
        if not self.earlier_tokens:  # of the first try: a later one has a longer prompt
            self.prompt_tokens = chunk.prompt_tokens if chunk.prompt_tokens is not None else self.prompt_tokens
            self.cached = chunk.cached_tokens if chunk.cached_tokens is not None else self.cached
        yield from self._say(self._whole.feed(chunk.text))

    def end(self) -> Iterator[TextDelta]:
        """The tail of the text, and the tokens that no text stood for."""
        yield from self._say(self._whole.feed("", last=True))
        if self.ids is not None and self.completion_tokens not in (None, len(self.ids) + self.end_tokens):
            self.ids = None  # some were not told: those in the middle of a character, by llama-server
        self._unsaid = max(0, self.completions() - self._said)
        if self._unsaid and not self.held:
            yield TextDelta("", self._take_unsaid(), 0)

    def release(self, text: str) -> TextDelta:
        """The text that is given out, after all, in one piece."""
        self.held, self.text = False, text
        return TextDelta(text, self._take_unsaid(), 0)

    def again(self) -> None:
        """Throw a held text away; its tokens stay counted."""
        self.earlier_tokens += self.completions()
        self.raw = self.text = ""
        self.ids, self.logprobs, self._unsaid = [], [], 0  # nothing was said: the text was held
        self.finish, self.completion_tokens, self.end_tokens = None, None, 0

    def completions(self) -> int:
        """Completion tokens of this try, the end of turn not counted: from the ids, else from the server's count."""
        if self.ids is not None:
            return len(self.ids)
        return max(0, (self.completion_tokens or 0) - self.end_tokens)

    def finished(self, finish: Finish, ids: Sequence[int]) -> Finished:
        ended = time.monotonic()
        first = self.first if self.first is not None else ended
        prompt = self.prompt_tokens if self.prompt_tokens is not None else len(self.job.ids)
        usage = Usage(
            prompt_tokens=prompt,
            recomputed_from=min(self.cached or 0, max(0, prompt - 1)),
            completion_tokens=self.earlier_tokens + self.completions(),
            forced_tokens=0,
            drafted_tokens=0,
            accepted_tokens=0,
        )
        return Finished(
            finish=finish,
            text=self.text,
            ids=tuple(ids),
            usage=usage,
            queued_ms=_ms(self.started - self.job.submitted),
            prefill_ms=_ms(first - self.started),
            decode_ms=_ms(ended - first),
            choice=self.choice,
            logprobs=self.logprobs if self.job.logprobs is not None else None,
        )

    def _take_ids(self, chunk: Chunk) -> None:
        self.logprobs += chunk.logprobs
        ids = chunk.ids
        if ids is None and chunk.logprobs:
            ids = tuple(entry.token for entry in chunk.logprobs)
        if ids is None or self.ids is None:
            self.ids = None
        else:
            self.ids += ids
            self._unsaid += len(ids)
        if chunk.end_ids:
            self.end_tokens = chunk.end_ids
            if self.ids is not None and len(self.ids) >= chunk.end_ids:
                del self.ids[-chunk.end_ids :]
                self._unsaid = max(0, self._unsaid - chunk.end_ids)
                del self.logprobs[len(self.ids) :]

    def _say(self, text: str) -> Iterator[TextDelta]:
        self.raw += text
        said = self.style.feed(text) if self.style else text
        if said and not self.held:
            self.text += said
            yield TextDelta(said, self._take_unsaid(), 0)

    def _take_unsaid(self) -> int:
        count, self._unsaid = self._unsaid, 0
        self._said += count
        return count


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
