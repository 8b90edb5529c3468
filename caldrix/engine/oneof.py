"""Exact scores for a choice: every option's log-probability given the prompt, in one pass over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from caldrix.engine.backend import Logits
from caldrix.engine.sample import Row, choose, log_softmax
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Choice, OneOf, Sampling, Score

Branches = Callable[[Sequence[Sequence[int]]], list[Logits]]


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


def score_options(first: Row, options: Sequence[Sequence[int]], branches: Branches) -> list[float]:
    """The sum of each option's token log-probabilities, its end of turn not included.

    `first` are the logits after the prompt; `branches` gives the logits of every row of each branch. An option's last
    token needs no row of its own, so options of one token need no pass at all.
    """
    opening = log_softmax(first)
    scores = [float(opening[option[0]]) for option in options]
    longer = [place for place, option in enumerate(options) if len(option) > 1]
    if longer:
        for place, rows in zip(longer, branches([options[place][:-1] for place in longer]), strict=True):
            following = options[place][1:]
            scores[place] += sum(float(log_softmax(row)[token]) for row, token in zip(rows, following, strict=True))
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
