"""What a generation gave so far: its tokens, their text as whole characters, and their log-probabilities."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from caldrix.engine.backend import Vocabulary
from caldrix.engine.jobs import TextDelta
from caldrix.engine.sample import Row, log_softmax
from caldrix.protocol.messages import Choice, Finish, TokenLogprob, TopLogprob


@dataclass
class Output:
    """What came out so far. `ids` are the tokens chosen, of which the first `said` were given out as text; `forced`
    tells of each whether the constraint left no choice."""

    ids: list[int] = field(default_factory=list)
    forced: list[bool] = field(default_factory=list)
    said: int = 0
    drafted: int = 0
    accepted: int = 0
    text: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    choice: Choice | None = None
    finish: Finish = "length"

    def choose(self, tokens: Sequence[int], *, forced: bool) -> None:
        self.ids += tokens
        self.forced += [forced] * len(tokens)

    def cut(self) -> None:
        """Take back the tokens that were chosen and not given out."""
        del self.ids[self.said :]
        del self.forced[self.said :]


class Speaker:
    """Turns token bytes into whole characters: a tail that is no character yet waits for the next token."""

    def __init__(self, output: Output, vocabulary: Vocabulary) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._output = output
        self._pieces = vocabulary.pieces
        self._tokens = 0
        self._forced = 0

    def say(self, count: int, *, last: bool = False) -> Iterator[TextDelta]:
        """Give out the next `count` of the chosen tokens; with `last` also an unfinished tail."""
        output = self._output
        end = output.said + count
        text = self._decoder.decode(b"".join(self._pieces[token] for token in output.ids[output.said : end]), last)
        self._tokens += count
        self._forced += sum(output.forced[output.said : end])
        output.said = end
        if text or (last and self._tokens):
            yield TextDelta(text, self._tokens, self._forced)
            output.text.append(text)
            self._tokens = self._forced = 0


def token_logprob(row: Row, token: int, top: int, vocabulary: Vocabulary, *, forced: bool) -> TokenLogprob:
    """One line of a Done's `logprobs`, with the `top` likeliest tokens."""
    logs = log_softmax(row)
    # A sort of the vocabulary costs more than a small model's token.
    best = np.argsort(-logs, kind="stable")[:top].tolist() if top else []
    return TokenLogprob(
        token=token,
        text=_text(vocabulary, token),
        logprob=float(logs[token]),
        forced=forced,
        top=[TopLogprob(token=other, text=_text(vocabulary, other), logprob=float(logs[other])) for other in best],
    )


def _text(vocabulary: Vocabulary, token: int) -> str:
    return vocabulary.pieces[token].decode("utf-8", "replace")
