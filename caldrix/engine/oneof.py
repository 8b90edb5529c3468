"""Exact scores for a choice: every option's log-probability given the prompt, as many options in a pass as fit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from caldrix.engine.backend import MAX_OUTPUT_ROWS, MIN_PASS_ROWS, Logits
from caldrix.engine.sample import Row, choose, log_softmax
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Choice, OneOf, Sampling, Score

Pieces: TypeAlias = "Sequence[tuple[int, Logits]]"
"""Of several runs, the number of a run and the logits of its next rows."""
Scoring: TypeAlias = "Generator[list[Sequence[int]] | None, Pieces, list[float]]"


def check_options(constraint: OneOf, tokenize: Callable[[str], Sequence[int]], max_new_tokens: int) -> list[list[int]]:
    """Each option's ids. Raises Refused("constraint_invalid") for options that cannot be chosen between."""
    options = constraint.options
    if not options or "" in options:
        raise Refused("constraint_invalid", "OneOf needs at least one option, and none of them empty")
    if len(set(options)) != len(options):
        raise Refused("constraint_invalid", "OneOf names an option twice")
    ids = [list(tokenize(option)) for option in options]
    for option, tokens in zip(options, ids, strict=True):
        if len(tokens) > max_new_tokens:
            raise Refused(
                "constraint_invalid",
                f"the option {option!r} has {len(tokens)} tokens, more than max_new_tokens ({max_new_tokens})",
            )
    return ids


def score_options(first: Row, options: Sequence[Sequence[int]], most_runs: int) -> Scoring:
    """The sum of each option's token log-probabilities, its end of turn not included.

    `first` are the logits after the prompt. It yields groups of at most `most_runs` runs of tokens, is sent the logits
    of every row of each run as pieces (the run's number, its next rows), and yields None for more of them until it is
    sent none. An option's last token needs no row of its own, so options of one token need no pass at all.
    """
    opening = log_softmax(first)
    scores = [float(opening[option[0]]) for option in options]
    longer = [place for place, option in enumerate(options) if len(option) > 1]
    for group in _groups(longer, options, most_runs):
        runs = [options[place][:-1] for place in group]
        following = [iter(options[place][1:]) for place in group]
        pieces = yield [*runs, *_padding(runs, most_runs)]
        while pieces:
            for number, rows in pieces:
                if number < len(group):
                    scores[group[number]] += sum(float(log_softmax(row)[next(following[number])]) for row in rows)
            pieces = yield None
    return scores


def _groups(places: Sequence[int], options: Sequence[Sequence[int]], most_runs: int) -> Iterator[list[int]]:
    """Options that share a pass: by the number of runs and of rows. A longer one stands alone."""
    group: list[int] = []
    rows = 0
    for place in places:
        length = len(options[place]) - 1
        if group and (len(group) == most_runs or rows + length > MAX_OUTPUT_ROWS):
            yield group
            group, rows = [], 0
        group.append(place)
        rows += length
    if group:
        yield group


def _padding(runs: Sequence[Sequence[int]], most_runs: int) -> list[Sequence[int]]:
    """Copies of the first run that bring a group to MIN_PASS_ROWS, so that scores do not depend on its company."""
    missing = MIN_PASS_ROWS - sum(len(run) for run in runs)
    return [runs[0]] * min(max(0, -(-missing // len(runs[0]))), most_runs - len(runs))


def decide(names: Sequence[str], scores: Sequence[float], sampling: Sampling, random: np.random.Generator) -> Choice:
    """The likeliest option, or at a temperature above 0 one drawn by its share."""
    logs = np.asarray(scores, dtype=np.float64)
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()
    place = choose(logs.astype(np.float32), sampling, random)
    return Choice(
        option=names[place],
        scores=[
            Score(option=name, logprob=float(log), probability=float(share))
            for name, log, share in zip(names, logs, shares, strict=True)
        ],
    )
