"""One generation as a generator: prompt → choose → compute → choose …, until its end.

It yields what is to be told (items) and what is to be computed (asks), and is sent the logits asked for. It knows no
thread and no other generation: `worker.py` joins the asks of several into passes. A cancel is thrown into it at an ask.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from llguidance import LLMatcher

from caldrix.engine.backend import MAX_OUTPUT_ROWS, Logits, Vocabulary
from caldrix.engine.jobs import Finished, Item, Job, Prefill
from caldrix.engine.oneof import Pieces, decide, score_options
from caldrix.engine.output import Output, Speaker, token_logprob
from caldrix.engine.picker import Picker
from caldrix.engine.sample import Row
from caldrix.protocol.messages import OneOf, Usage


@dataclass(frozen=True)
class Prepared:
    """A job with what was compiled for it: a matcher, or the ids of OneOf's options, or neither."""

    job: Job
    matcher: LLMatcher | None = None
    options: list[list[int]] | None = None


@dataclass(frozen=True)
class Compute:
    """Rows for `tokens` after the first `keep` rows; the answer is the logits of the last `wanted` of them.

    `meanwhile` is work for another thread while the model computes the last of them.
    """

    keep: int
    tokens: Sequence[int]
    wanted: int
    meanwhile: Callable[[], None] | None = None


@dataclass(frozen=True)
class Branch:
    """The logits of every row of each run after the rows that stand, which stay as they are; the answer is Pieces.

    `runs` None: more of those asked for before; the answer is empty when there is none.
    """

    runs: Sequence[Sequence[int]] | None


Ask = Compute | Branch
Steps = Generator[Item | Ask, "Logits | Pieces | None", Finished]


class Drafter(Protocol):
    """Guesses tokens that may come next; see `draft.py`."""

    def propose(self, output: bytearray, pending: int, room: int) -> list[int]:
        """At most `room` tokens after `output`, of which `pending` tokens are computed in the same pass."""

    def note(self, proposed: int, accepted: int) -> None:
        """So many of the tokens proposed last came true."""


class Cancelled(Exception):
    """Thrown into a generation at an ask: its job was cancelled."""


class Generation:
    """A job under way. `started` and `resumed` are set by whoever runs it, before the first step."""

    def __init__(self, prepared: Prepared, vocabulary: Vocabulary, drafter: Drafter | None, branches: int) -> None:
        self.job = prepared.job
        self.started = 0.0
        self.resumed = 0
        self._prepared = prepared
        self._vocabulary = vocabulary
        self._drafter = drafter if self.job.draft and self.job.logprobs is None else None
        self._output = Output()
        self._speaker = Speaker(self._output, vocabulary)
        self._picker = Picker(prepared.matcher, self.job.sampling, vocabulary)
        self._filled: float | None = None
        self._standing = len(self.job.ids)
        self._bytes = bytearray()
        self._spelt = 0
        self._branches = branches
        self._ended = False

    def steps(self) -> Steps:
        """Raises Refused when the constraint breaks on its way."""
        try:
            first = _last((yield Compute(self.resumed, self.job.ids[self.resumed :], 1)))
            self._filled = time.monotonic()
            if self._prepared.options is not None:
                yield from self._choose_option(first, self._prepared.options)
            else:
                yield from self._decode(first)
        except Cancelled:
            self._output.finish = "cancelled"
            self._output.cut()
        yield from self._speaker.say(0, last=True)
        return self._finished()

    def _decode(self, first: Row) -> Iterator[Item | Ask]:
        """The tokens chosen from the rows at hand are computed with a draft of what may follow, which gives new
        rows."""
        draft: list[int] = []
        chosen = self._forced()
        rows: Sequence[Row] = [first]
        before = first
        if not chosen:
            chosen, _ = yield from self._accept(rows, draft)
        while not self._ended:
            draft = self._propose(len(chosen))
            rows = yield from self._compute(chosen, draft, before)
            before = rows[0]
            chosen, stand = yield from self._accept(rows, draft)
            self._standing += stand
            if self._drafter and draft:
                self._drafter.note(len(draft), stand)
                self._output.drafted += len(draft)
                self._output.accepted += stand
        if self.job.logprobs is not None and chosen:
            yield from self._compute(chosen, [], before)
        else:
            yield Compute(self._standing, [], 0)
            yield from self._speaker.say(len(chosen))

    def _accept(self, rows: Sequence[Row], draft: Sequence[int]) -> Generator[Item, None, tuple[list[int], int]]:
        """Choose from one row after the other for as long as the draft foresaw what is chosen.

        Gives the tokens chosen beyond the draft, and how many of the draft's rows stand.
        """
        place = 0
        while True:
            new = self._next(rows[place])
            same = _same(new, draft[place:])
            place += same
            yield from self._speaker.say(same)
            if self._ended or same < len(new):
                return new[same:], place

    def _next(self, row: Row) -> list[int]:
        """The token chosen from a row and what the constraint forces after it; empty at the end of turn."""
        output = self._output
        token = self._picker.pick(row, output.ids)
        if token in self._vocabulary.end_of_generation:
            output.finish, self._ended = "stop", True
            return []
        output.choose([token], forced=False)
        return [token, *self._forced()]

    def _forced(self) -> list[int]:
        """What the constraint leaves no choice about; sees whether the end is reached."""
        output, most = self._output, self.job.max_new_tokens
        tokens = self._picker.forced(most - len(output.ids))
        output.choose(tokens, forced=True)
        if self._picker.complete:
            output.finish, self._ended = "stop", True
        elif len(output.ids) >= most:
            output.finish, self._ended = "length", True
        return tokens

    def _propose(self, pending: int) -> list[int]:
        room = min(self.job.max_new_tokens - len(self._output.ids) - 1, MAX_OUTPUT_ROWS - 1)
        if self._drafter is None or room < 1:
            return []
        for token in self._output.ids[self._spelt :]:
            self._bytes += self._vocabulary.pieces[token]
        self._spelt = len(self._output.ids)
        draft = self._drafter.propose(self._bytes, pending, room)
        return draft[: self._picker.valid(draft)] if draft else []

    def _compute(
        self, chosen: Sequence[int], draft: Sequence[int], before: Row
    ) -> Generator[Item | Ask, Logits | list[Logits] | None, Sequence[Row]]:
        """Rows for what was chosen, in runs that are told of before they are computed, and for the draft.

        Gives the row after the last one chosen and those of the draft.
        """
        told = self.job.logprobs is not None
        logits: Logits = np.empty((0, 0), np.float32)
        for start in range(0, len(chosen), MAX_OUTPUT_ROWS):
            run = chosen[start : start + MAX_OUTPUT_ROWS]
            last = start + len(run) == len(chosen)
            if not told:
                yield from self._speaker.say(len(run))
            tokens = [*run, *draft] if last else run
            wanted = len(tokens) if told else 1 + len(draft) if last else 0
            ahead = self._picker.ahead(draft) if last else None
            answer = yield Compute(self._standing, tokens, wanted, ahead)
            assert isinstance(answer, np.ndarray)
            logits = answer
            self._standing += len(run)
            if told:
                self._tell(before, run, logits)
                yield from self._speaker.say(len(run))
                before = logits[-1]
        return list(logits[len(logits) - 1 - len(draft) :])

    def _tell(self, before: Row, run: Sequence[int], logits: Logits) -> None:
        """The log-probabilities of a run, whose tokens are given out next."""
        output, top = self._output, self.job.logprobs
        assert top is not None
        flags = output.forced[output.said : output.said + len(run)]
        output.logprobs += [
            token_logprob(line, token, top, self._vocabulary, forced=forced)
            for line, token, forced in zip([before, *logits[:-1]], run, flags, strict=True)
        ]

    def _choose_option(self, first: Row, options: list[list[int]]) -> Iterator[Item | Ask]:
        job, output = self.job, self._output
        assert isinstance(job.constraint, OneOf)
        scores = yield from self._scores(first, options)
        output.choice = decide(job.constraint.options, scores, job.sampling, np.random.default_rng(job.sampling.seed))
        chosen = options[job.constraint.options.index(output.choice.option)]
        output.choose(chosen, forced=False)
        output.finish = "stop"
        if job.logprobs is not None:
            lines: list[Row] = [first]
            for start in range(0, len(chosen) - 1, MAX_OUTPUT_ROWS):
                run = chosen[start : min(start + MAX_OUTPUT_ROWS, len(chosen) - 1)]
                answer = yield Compute(len(job.ids) + start, run, len(run))
                assert isinstance(answer, np.ndarray)
                lines += list(answer)
            output.logprobs = [
                token_logprob(row, token, job.logprobs, self._vocabulary, forced=False)
                for row, token in zip(lines, chosen, strict=True)
            ]
        yield from self._speaker.say(len(chosen))

    def _scores(self, first: Row, options: list[list[int]]) -> Generator[Item | Ask, object, list[float]]:
        """Score the options; each pass is a point to cancel at, and a sign of life."""
        scoring = score_options(first, options, self._branches)
        try:
            runs = next(scoring)
            while True:
                pieces = yield Branch(runs)
                assert isinstance(pieces, list)
                if pieces:
                    yield Prefill(len(self.job.ids), len(self.job.ids), self.resumed)
                runs = scoring.send(pieces)
        except StopIteration as end:
            scores: list[float] = end.value
            return scores

    def _finished(self) -> Finished:
        output, ended = self._output, time.monotonic()
        filled = self._filled if self._filled is not None else ended
        return Finished(
            finish=output.finish,
            text="".join(output.text),
            ids=tuple(output.ids),
            usage=Usage(
                prompt_tokens=len(self.job.ids),
                recomputed_from=self.resumed,
                completion_tokens=len(output.ids),
                forced_tokens=sum(output.forced),
                drafted_tokens=output.drafted,
                accepted_tokens=output.accepted,
            ),
            queued_ms=_ms(self.started - self.job.submitted),
            prefill_ms=_ms(filled - self.started),
            decode_ms=_ms(ended - filled),
            choice=output.choice,
            logprobs=output.logprobs if self.job.logprobs is not None else None,
        )


def _same(new: Sequence[int], draft: Sequence[int]) -> int:
    """How many leading tokens agree."""
    length = min(len(new), len(draft))
    return next((place for place in range(length) if new[place] != draft[place]), length)


def _last(logits: object) -> Row:
    assert isinstance(logits, np.ndarray)
    row: Row = logits[-1]
    return row


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
