"""Choosing tokens under a constraint and a sampling: one at a time, or several where there is no choice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llguidance import LLMatcher

from caldrix.engine.backend import Vocabulary
from caldrix.engine.constrain import Mask, check
from caldrix.engine.sample import Row, choose, penalise
from caldrix.protocol.messages import Sampling


class Picker:
    """`matcher` None: nothing constrains the choice."""

    def __init__(self, matcher: LLMatcher | None, sampling: Sampling, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._sampling = sampling
        self._mask = Mask(len(vocabulary.pieces))
        self._random = np.random.default_rng(self._sampling.seed)
        # Control tokens would come back as text that no segment may hold as such; only an end of turn is let through.
        self._never = np.fromiter(vocabulary.control - vocabulary.end_of_generation, dtype=np.int64)

    @property
    def complete(self) -> bool:
        """The constraint allows nothing more."""
        return self._matcher is not None and self._matcher.is_stopped()

    def forced(self, room: int) -> list[int]:
        """Tokens that the constraint leaves no choice about, at most `room`; the matcher has consumed them."""
        if self._matcher is None or room <= 0 or self.complete:
            return []
        tokens = [int(token) for token in self._matcher.compute_ff_tokens()][:room]
        if tokens:
            self._matcher.consume_tokens(tokens)
            check(self._matcher)
        return tokens

    def pick(self, row: Row, so_far: Sequence[int]) -> int:
        """The next token. Raises Refused when the constraint cannot be followed."""
        scores = penalise(row, so_far, self._sampling.repeat_penalty).copy()
        if self._matcher is None:
            scores[self._never] = -np.inf
        else:
            scores[~self._mask.allowed(self._matcher)] = -np.inf
        token = choose(scores, self._sampling, self._random)
        if self._matcher is not None:
            self._matcher.consume_token(token)
            check(self._matcher)
        return token
