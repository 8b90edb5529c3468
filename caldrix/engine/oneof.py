"""Exact scores for a choice: every option's log-probability given the prompt, as many options in a pass as fit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

import numpy as np

from caldrix.engine.backend import Logits
from caldrix.engine.sample import Row, choose, log_softmax
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Choice, OneOf, Sampling, Score

Branches = Callable[[Sequence[Sequence[int]]], Iterator[tuple[int, Logits]]]


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


def score_options(
    first: Row, options: Sequence[Sequence[int]], branches: Branches
) -> Generator[None, None, list[float]]:
    """The sum of each option's token log-probabilities, its end of turn not included.

    `first` are the logits after the prompt; `branches` gives the logits of every row of each branch. An option's last
    token needs no row of its own, so options of one token need no pass at all. Yields after each piece: a point to
    stop at, since thousands of options take their time.
    """
    opening = log_softmax(first)
    scores = [float(opening[option[0]]) for option in options]
    longer = [place for place, option in enumerate(options) if len(option) > 1]
    following = {place: iter(options[place][1:]) for place in longer}
    for number, rows in branches([options[place][:-1] for place in longer]):
        place = longer[number]
        scores[place] += sum(float(log_softmax(row)[next(following[place])]) for row in rows)
        yield
    return scores


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
