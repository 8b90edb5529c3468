"""What differs from server to server, as a few calls. `llama_server.py`, `vllm.py` and `sglang.py` are the three."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from caldrix.engine.jobs import Prefill
from caldrix.engine.strategy import ChatTemplate
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Finish, Json, Lark, Regex, Role, Sampling, TokenLogprob
from caldrix.remote.events import Event

Grammar = Json | Regex | Lark
Means = Literal["json", "regex", "lark"]
"""A kind of constraint that a server may enforce itself."""

Answer = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""`Server.answer`."""


@dataclass(frozen=True)
class Ask:
    """One generation as a server is asked for it. `constraint` is one that the server itself enforces."""

    ids: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    constraint: Grammar | None = None
    logprobs: int | None = None


@dataclass(frozen=True)
class Chunk:
    """What one event says. `ids` are None where the server does not tell them. `end_ids` of the output's last ids end
    the turn and are no part of the text. Counts stand in the last events only."""

    text: str = ""
    ids: tuple[int, ...] | None = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    progress: Prefill | None = None
    finish: Finish | None = None
    end_ids: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


Reader = Callable[[Event], Chunk]
"""Turns one generation's events into chunks, in order. Raises ServerFault for an event that reports an error."""


class Dialect(Protocol):
    """A server of one kind with one of its models. Calls that ask the server block and raise ServerFault."""

    name: str
    window: int
    parses_markup: bool
    """Whether control tokens in plain text become tokens however it is asked."""

    def tokenize(self, text: str, *, markup: bool = False) -> list[int]:
        """The ids of a text, nothing added. `markup`: control tokens in it are parsed."""

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens included."""

    def begin_ids(self) -> tuple[int, ...]:
        """What the server puts before every prompt beside its template."""

    def template(self) -> tuple[ChatTemplate, list[str]]:
        """The server's chat template, and notes about it. Raises Refused("model_refused") where it cannot be had."""

    def chat_ids(self, roles: Sequence[tuple[Role, str]]) -> list[int]:
        """What the server makes of a chat, to compare with."""

    def generation(self, ask: Ask) -> tuple[str, dict[str, Any]]:
        """Where a generation is asked for, and the request. Raises Refused for what the server cannot."""

    def reader(self) -> Reader: ...

    async def score(self, answer: Answer, ids: Sequence[int], options: Sequence[Sequence[int]]) -> list[float]:
        """The exact log-probability of each option after the prompt. Raises ServerFault."""

    async def logprobs(self, answer: Answer, ids: Sequence[int], output: Sequence[int], top: int) -> list[TokenLogprob]:
        """An entry for each token of an output after the prompt, `top` others in each. Raises ServerFault."""

    def means(self) -> list[tuple[Means, str]]:
        """The constraints its interface has fields for, with the field's name: each is tried at load."""

    def use(self, means: Means) -> None:
        """Take note that the server enforces constraints of this kind."""

    def limits(self) -> list[str]:
        """Notes on what this kind of server cannot do."""


def refuse_field(name: str, server: str, why: str) -> Refused:
    """The refusal of a sampling field that would otherwise be dropped."""
    return Refused("bad_request", f"sampling.{name} cannot be served by {server}: {why}")


MAX_SEED: Final[dict[str, int]] = {"llama-server": 2**32 - 2, "vLLM": 2**63 - 1}


def checked_seed(seed: int, server: str) -> int:
    """Raises Refused("bad_request") for a seed that the server would read as another one."""
    if seed > MAX_SEED[server]:
        raise refuse_field("seed", server, f"{seed} is more than its largest, {MAX_SEED[server]}")
    return seed
