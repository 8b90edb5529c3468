"""One generation as a generator: resume → fill → choose → yield, until its end. Each yield is a point to cancel at."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

import numpy as np
from llguidance import LLMatcher

from caldrix.engine.backend import MAX_OUTPUT_ROWS, Logits, Vocabulary
from caldrix.engine.jobs import Finished, Item, Job, Prefill, TextDelta
from caldrix.engine.oneof import decide, score_options
from caldrix.engine.output import Output, Speaker, token_logprob
from caldrix.engine.picker import Picker
from caldrix.engine.rows import Rows
from caldrix.engine.sample import Row
from caldrix.protocol.messages import OneOf, Usage


@dataclass(frozen=True)
class Prepared:
    """A job with what was compiled for it: a matcher, or the ids of OneOf's options, or neither."""

    job: Job
    matcher: LLMatcher | None = None
    options: list[list[int]] | None = None


class _Cancelled(Exception):
    """The job was cancelled while its prompt was computed."""


def generate(prepared: Prepared, rows: Rows, vocabulary: Vocabulary) -> Iterator[Item]:
    """Yields Prefill and TextDelta items and one Finished.

    Raises Refused when the constraint breaks on its way, EngineFailed when the engine does.
    """
    job = prepared.job
    output = Output()
    started = time.monotonic()
    resumed = rows.resume(job.ids)
    filled = started
    try:
        yield Prefill(resumed, len(job.ids), resumed)
        first = yield from _fill(job, rows, resumed)
        filled = time.monotonic()
        if prepared.options is not None:
            yield from _choose_option(prepared, first, rows, vocabulary, output, resumed)
        else:
            yield from _decode(prepared, first, rows, vocabulary, output)
    except _Cancelled:
        output.finish = "cancelled"
    ended = time.monotonic()
    filled = filled if filled > started else ended
    yield Finished(
        finish=output.finish,
        text="".join(output.text),
        ids=tuple(output.ids),
        usage=Usage(
            prompt_tokens=len(job.ids),
            recomputed_from=resumed,
            completion_tokens=len(output.ids),
            forced_tokens=output.forced,
            drafted_tokens=0,
            accepted_tokens=0,
        ),
        queued_ms=_ms(started - job.submitted),
        prefill_ms=_ms(filled - started),
        decode_ms=_ms(ended - filled),
        choice=output.choice,
        logprobs=output.logprobs if job.logprobs is not None else None,
    )


def _fill(job: Job, rows: Rows, resumed: int) -> Generator[Item, None, Row]:
    """Compute the prompt's rows pass by pass; gives the logits after the last one."""
    for done, logits in rows.fill(job.ids):
        yield Prefill(done, len(job.ids), resumed)
        if job.cancelled:
            raise _Cancelled
        if logits is not None:
            return _last(logits)
    raise AssertionError("a prompt has a row to compute at least")


def _choose_option(
    prepared: Prepared, first: Row, rows: Rows, vocabulary: Vocabulary, output: Output, resumed: int
) -> Iterator[Item]:
    job, options = prepared.job, prepared.options
    assert options is not None and isinstance(job.constraint, OneOf)
    scores = yield from _scores(job, first, options, rows, resumed)
    output.choice = decide(job.constraint.options, scores, job.sampling, np.random.default_rng(job.sampling.seed))
    output.ids = options[job.constraint.options.index(output.choice.option)]
    output.finish = "stop"
    if job.logprobs is not None:
        branch = [output.ids[:-1]] if len(output.ids) > 1 else []
        lines = chain([first], (line for _, piece in rows.branches(branch) for line in piece))
        output.logprobs = [
            token_logprob(row, token, job.logprobs, vocabulary, forced=False)
            for row, token in zip(lines, output.ids, strict=True)
        ]
    yield from Speaker(output, vocabulary).say(output.ids, 0, last=True)


def _scores(
    job: Job, first: Row, options: list[list[int]], rows: Rows, resumed: int
) -> Generator[Item, None, list[float]]:
    """Score the options; each piece is a point to cancel at, and a sign of life."""
    with closing(score_options(first, options, rows.branches)) as scoring:
        while True:
            try:
                next(scoring)
            except StopIteration as end:
                scores: list[float] = end.value
                return scores
            yield Prefill(len(job.ids), len(job.ids), resumed)
            if job.cancelled:
                raise _Cancelled


def _decode(prepared: Prepared, row: Row, rows: Rows, vocabulary: Vocabulary, output: Output) -> Iterator[TextDelta]:
    """Token by token; what the constraint forces after a token is computed with it, in passes of about a second."""
    job = prepared.job
    picker = Picker(prepared.matcher, job.sampling, vocabulary)
    speaker = Speaker(output, vocabulary)
    pending, free = picker.forced(job.max_new_tokens), 0
    while True:
        ends = picker.complete or len(output.ids) + len(pending) >= job.max_new_tokens
        for run in rows.passes(pending, MAX_OUTPUT_ROWS):
            if job.cancelled:
                break
            output.ids += run
            output.forced += len(run) - free
            yield from speaker.say(run, len(run) - free)
            if not ends or job.logprobs is not None:
                row = _compute(job, run, len(run) - free, row, rows, vocabulary, output)
            free = 0
        else:
            if ends:
                output.finish = "stop" if picker.complete else "length"
                break
        if job.cancelled:
            output.finish = "cancelled"
            break
        token = picker.pick(row, output.ids)
        if token in vocabulary.end_of_generation:
            output.finish = "stop"
            break
        following = picker.forced(job.max_new_tokens - len(output.ids) - 1)
        pending, free = [token, *following], 1
    yield from speaker.say([], 0, last=True)


def _compute(
    job: Job, tokens: Sequence[int], forced: int, before: Row, rows: Rows, vocabulary: Vocabulary, output: Output
) -> Row:
    """Rows for `tokens`; with log-probabilities asked, every row's logits are kept to tell the tokens'."""
    if job.logprobs is None:
        return _last(rows.extend(tokens, "last"))
    logits: Logits = rows.extend(tokens, "all")
    lines = [before, *logits[:-1]]
    free = len(tokens) - forced
    output.logprobs += [
        token_logprob(line, token, job.logprobs, vocabulary, forced=place >= free)
        for place, (line, token) in enumerate(zip(lines, tokens, strict=True))
    ]
    return _last(logits)


def _last(logits: Logits) -> Row:
    row: Row = logits[-1]
    return row


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
