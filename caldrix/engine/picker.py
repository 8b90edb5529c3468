"""Choosing tokens under a constraint and a sampling: one at a time, or several where there is no choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from llguidance import LLMatcher

from caldrix.engine.backend import Vocabulary
from caldrix.engine.constrain import Masks, check
from caldrix.engine.sample import Row, choose, penalise
from caldrix.protocol.messages import Sampling


class Picker:
    """`matcher` None: nothing constrains the choice."""

    def __init__(self, matcher: LLMatcher | None, sampling: Sampling, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._sampling = sampling
        self._masks = Masks(len(vocabulary.pieces))
        self._random = np.random.default_rng(self._sampling.seed)
        # Control tokens would come back as text that no segment may hold as such; only an end of turn is let through.
        self._never = np.zeros(len(vocabulary.pieces), bool)
        self._never[list(vocabulary.control - vocabulary.end_of_generation)] = True

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
            self._consume(tokens)
        return tokens

    def valid(self, tokens: Sequence[int]) -> int:
        """How many of these could come next, one after the other."""
        if self._matcher is None:
            return next((place for place, token in enumerate(tokens) if self._never[token]), len(tokens))
        return 0 if self.complete else int(self._matcher.validate_tokens(list(tokens)))

    def ahead(self, following: Sequence[int]) -> Callable[[], None] | None:
        """Work to do while the model computes: the masks of the next choice and of those after each of `following`."""
        matcher = self._matcher
        if matcher is None or self.complete:
            return None
        return lambda: self._masks.compute(matcher, following)

    def pick(self, row: Row, so_far: Sequence[int]) -> int:
        """The next token. Raises Refused when the constraint cannot be followed."""
        token = self._choose(penalise(row, so_far, self._sampling.repeat_penalty))
        if self._matcher is not None:
            self._consume([token])
        return token

    def _choose(self, scores: Row) -> int:
        """At temperature 0 the largest logit mostly is allowed, and then no mask needs to be spread out."""
        if self._sampling.temperature == 0 and self._allows(best := int(scores.argmax())):
            return best
        refused = self._never if self._matcher is None else ~self._masks.allowed(self._matcher)
        return choose(np.where(refused, np.float32(-np.inf), scores), self._sampling, self._random)

    def _allows(self, token: int) -> bool:
        if self._matcher is None:
            return not self._never[token]
        return self._masks.allows(self._matcher, token)

    def _consume(self, tokens: Sequence[int]) -> None:
        assert self._matcher is not None
        self._matcher.consume_tokens(list(tokens))
        check(self._matcher)
        self._masks.followed(tokens)
