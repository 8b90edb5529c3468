"""llama-server of llama.cpp: its own endpoints, which take token ids and tell more than the OpenAI-compatible ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

from caldrix.engine.jobs import Prefill
from caldrix.engine.strategy import ChatTemplate, open_template
from caldrix.protocol.messages import Json, Lark, Regex, Role, Sampling, TokenLogprob, TopLogprob
from caldrix.remote.dialect import Answer, Ask, Chunk, Means, Reader, checked_seed
from caldrix.remote.events import Event
from caldrix.remote.grammar import guidance_text
from caldrix.remote.server import Server, ServerFault, fact

FORCING_BIAS: Final = 10_000.0
"""Added to a logit, it makes its token the choice; the log-probabilities told are those before it."""
EVERY_TOKEN: Final = 1 << 20
"""More than any vocabulary has."""
_NEUTRAL: Final[dict[str, Any]] = {
    # The server's own command line may set any of these otherwise.
    "typical_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "xtc_probability": 0.0,
    "dynatemp_range": 0.0,
    "mirostat": 0,
    "samplers": ["penalties", "temperature", "top_k", "top_p", "min_p"],
}


class LlamaServer:
    """See `caldrix.remote.dialect.Dialect`."""

    name = "llama-server"
    parses_markup = False

    def __init__(self, server: Server, window: int, properties: dict[str, Any]) -> None:
        self.window = window
        self._server = server
        self._root = server.address.root
        self._properties = properties
        self._means: set[Means] = set()

    def tokenize(self, text: str, *, markup: bool = False) -> list[int]:
        return self._ids(text, markup=markup, add_special=False)

    def detokenize(self, ids: Sequence[int]) -> str:
        answer = self._server.post(f"{self._root}/detokenize", {"tokens": list(ids)})
        return _wanted(fact(answer, str, "content"), "/detokenize")

    def begin_ids(self) -> tuple[int, ...]:
        with_special = self._ids("a", markup=False, add_special=True)
        plain = self._ids("a", markup=False, add_special=False)
        return tuple(with_special[: len(with_special) - len(plain)]) if with_special[-len(plain) :] == plain else ()

    def template(self) -> tuple[ChatTemplate, list[str]]:
        source = fact(self._properties, str, "chat_template")
        bos, eos = (fact(self._properties, str, name) or "" for name in ("bos_token", "eos_token"))
        template, note = open_template(source or None, bos, eos)
        return template, [note] if note else []

    def chat_ids(self, roles: Sequence[tuple[Role, str]]) -> list[int]:
        messages = [{"role": role, "content": content} for role, content in roles]
        answer = self._server.post(f"{self._root}/apply-template", {"messages": messages})
        prompt = _wanted(fact(answer, str, "prompt"), "/apply-template")
        return self._ids(prompt, markup=True, add_special=True)

    def generation(self, ask: Ask) -> tuple[str, dict[str, Any]]:
        body = {
            "prompt": list(ask.ids),
            "n_predict": ask.max_new_tokens,
            "stream": True,
            "cache_prompt": True,
            "return_tokens": True,
            "return_progress": True,
            **self._sampling(ask.sampling),
            **self._constraint(ask),
        }
        if ask.logprobs is not None:
            # 0 would tell nothing, not even the token's own. Streamed, ids in the middle of a character are left out.
            body |= {"n_probs": max(1, ask.logprobs), "stream": False}
        return f"{self._root}/completion", body

    def reader(self) -> Reader:
        return _chunk

    async def score(self, answer: Answer, ids: Sequence[int], options: Sequence[Sequence[int]]) -> list[float]:
        """The server tells the log-probability of the token it took, so each token of an option is made the one it
        takes. A beginning that options share is asked for once."""
        known: dict[tuple[int, ...], float] = {}
        for option in options:
            for end in range(1, len(option) + 1):
                head = tuple(option[:end])
                if head not in known:
                    known[head] = (await self._forced(answer, [*ids, *head[:-1]], head[-1], 1)).logprob
        return [sum(known[tuple(option[:end])] for end in range(1, len(option) + 1)) for option in options]

    async def logprobs(self, answer: Answer, ids: Sequence[int], output: Sequence[int], top: int) -> list[TokenLogprob]:
        """The answer has no entry for a token in the middle of a character: every token is asked for again."""
        entries = [await self._forced(answer, [*ids, *output[:end]], token, top) for end, token in enumerate(output)]
        return [entry.model_copy(update={"top": entry.top[:top]}) for entry in entries]

    def means(self) -> list[tuple[Means, str]]:
        return [("lark", "grammar (llguidance)"), ("json", "json_schema")]

    def use(self, means: Means) -> None:
        self._means.add(means)
        if means == "lark":  # a Lark grammar can hold both
            self._means |= {"regex", "json"}

    def limits(self) -> list[str]:
        whole = "with log-probabilities asked for, llama-server's answer comes in one piece at its end"
        if "lark" in self._means:
            return [whole]
        return [whole, "this llama-server was built without llguidance: it takes no Regex and no Lark constraints"]

    def _ids(self, text: str, *, markup: bool, add_special: bool) -> list[int]:
        body = {"content": text, "parse_special": markup, "add_special": add_special}
        return checked_ids(fact(self._server.post(f"{self._root}/tokenize", body), list, "tokens"), "/tokenize")

    def _constraint(self, ask: Ask) -> dict[str, Any]:
        match ask.constraint:
            case None:
                return {}
            case Json(schema_=schema) if "lark" not in self._means:
                return {"json_schema": schema}
            case Json() | Regex() | Lark() as grammar:
                return {"grammar": guidance_text(grammar)}

    async def _forced(self, answer: Answer, ids: Sequence[int], token: int, top: int) -> TokenLogprob:
        entry = await self._taken(answer, ids, token, max(1, top))
        if entry is not None and entry.token == token:
            return entry
        # Of a token that begins a character nothing is told: another is taken, and this one sought among all others.
        whole = await self._taken(answer, ids, (await asyncio.to_thread(self.tokenize, "a"))[0], EVERY_TOKEN)
        found = next((other for other in whole.top if other.token == token), None) if whole else None
        if whole is None or found is None:
            raise ServerFault("llama-server did not tell the log-probability of a token it was asked for")
        return TokenLogprob(token=token, text=found.text, logprob=found.logprob, forced=False, top=whole.top[:top])

    async def _taken(self, answer: Answer, ids: Sequence[int], token: int, top: int) -> TokenLogprob | None:
        """What is told of `token` when it is made the one that is taken."""
        body = {
            "prompt": list(ids),
            "n_predict": 1,
            "cache_prompt": True,
            "n_probs": top,
            "logit_bias": [[token, FORCING_BIAS]],
            **self._sampling(Sampling()),
        }
        entry = fact(await answer(f"{self._root}/completion", body), dict, "completion_probabilities", 0)
        return None if entry is None else _logprob(entry)

    def _sampling(self, sampling: Sampling) -> dict[str, Any]:
        return {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "repeat_penalty": sampling.repeat_penalty,
            "repeat_last_n": self.window,  # all of it
            "seed": checked_seed(sampling.seed, "llama-server"),
            **_NEUTRAL,
        }


def checked_ids(value: list[Any] | None, endpoint: str) -> list[int]:
    """Raises ServerFault where these are no token ids."""
    if value is None or not all(type(item) is int for item in value):
        raise ServerFault(f"{endpoint} did not answer with token ids: {json.dumps(value)[:200]}")
    return value


def _wanted(text: str | None, endpoint: str) -> str:
    if text is None:
        raise ServerFault(f"{endpoint} did not answer with a text")
    return text


def _chunk(event: Event) -> Chunk:
    if "error" in event:
        raise ServerFault(f"llama-server broke off: {fact(event, str, 'error', 'message') or event['error']}")
    if (progress := fact(event, dict, "prompt_progress")) is not None:
        counts = [fact(progress, int, name) or 0 for name in ("processed", "total", "cache")]
        return Chunk(progress=Prefill(*counts))
    ids = tuple(checked_ids(fact(event, list, "tokens") or [], "/completion"))
    logprobs = tuple(_logprob(entry) for entry in fact(event, list, "completion_probabilities") or [])
    text = fact(event, str, "content") or ""
    if event.get("stop") is not True:
        return Chunk(text, ids, logprobs)
    limit = fact(event, str, "stop_type") == "limit"
    return Chunk(
        text,
        ids,
        logprobs,
        finish="length" if limit else "stop",
        end_ids=0 if limit else 1,
        prompt_tokens=fact(event, int, "tokens_evaluated"),
        completion_tokens=fact(event, int, "tokens_predicted"),
        cached_tokens=fact(event, int, "timings", "cache_n"),
    )


def _logprob(entry: Any) -> TokenLogprob:
    top = [
        TopLogprob(token=token, text=text, logprob=logprob)
        for token, text, logprob in map(_entry, fact(entry, list, "top_logprobs") or [])
    ]
    token, text, logprob = _entry(entry)
    return TokenLogprob(token=token, text=text, logprob=logprob, forced=False, top=top)


def _entry(entry: Any) -> tuple[int, str, float]:
    token, logprob = fact(entry, int, "id"), fact(entry, float, "logprob")
    if token is None or logprob is None:
        raise ServerFault("llama-server told log-probabilities in a form that is not known")
    return token, fact(entry, str, "token") or "", logprob
