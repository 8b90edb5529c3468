"""One generation as its client saw it, whichever server it came from."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.pool.errors import NotMeasured
from benchmarks.pool.texts import Arrival

MILLISECONDS = 1000.0


@dataclass(frozen=True)
class Run:
    """Times in seconds. `started` and the arrivals are of one clock; `decode_s` is what the server itself counted.

    `first_tokens` came with the first piece of text, so the client's clock cannot tell how long they took.
    `resumed` is the first row of the prompt that was computed; `drafted` and `accepted` count drafted tokens.
    """

    text: str
    tokens: int
    prompt_tokens: int
    started: float
    ended: float
    arrivals: tuple[Arrival, ...]
    first_tokens: int
    decode_s: float
    resumed: int
    forced: int = 0
    drafted: int = 0
    accepted: int = 0

    @property
    def first_s(self) -> float:
        """From the request to its first text."""
        return self.arrivals[0].at - self.started

    @property
    def wall_s(self) -> float:
        return self.ended - self.started

    @property
    def rate(self) -> float:
        """Tokens per second of decode by the client's clock: those after the first piece, until the last one.

        Raises NotMeasured when the text came in one piece.
        """
        if self.tokens <= self.first_tokens or len(self.arrivals) < 2:
            raise NotMeasured(f"a text of {self.tokens} tokens came in one piece: {self.text[:60]!r}")
        return (self.tokens - self.first_tokens) / (self.arrivals[-1].at - self.arrivals[0].at)

    @property
    def own_rate(self) -> float:
        """Tokens per second of decode as the server counts its own time."""
        return self.tokens / self.decode_s

    @property
    def token_ms(self) -> float:
        """Milliseconds a token of decode takes, by the client's clock."""
        return MILLISECONDS / self.rate
