"""vLLM: prompts as token ids to `/v1/completions`, its tokenizer by `/tokenize` and `/detokenize`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from caldrix.engine.strategy import ChatTemplate
from caldrix.protocol.messages import Json, Lark, Regex, Role, Sampling, TokenLogprob, TopLogprob
from caldrix.remote.chattemplate import Chat, learn_template
from caldrix.remote.dialect import Answer, Ask, Chunk, Means, Reader, checked_seed
from caldrix.remote.events import Event
from caldrix.remote.llama_server import checked_ids
from caldrix.remote.server import Server, ServerFault, fact

TOKEN_ID: Final = "token_id:"  # noqa: S105 - no password


class Vllm:
    """See `caldrix.remote.dialect.Dialect`. `older`: constraints go by `guided_json`, not by `structured_outputs`."""

    name = "vLLM"
    parses_markup = True

    def __init__(self, server: Server, model: str, window: int) -> None:
        self.window = window
        self.older = False
        self._server = server
        self._model = model
        self._base = server.address.base
        self._root = server.address.root
        self._texts: dict[int, str] = {}

    def tokenize(self, text: str, *, markup: bool = False) -> list[int]:
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        return checked_ids(fact(self._server.post(f"{self._root}/tokenize", body), list, "tokens"), "/tokenize")

    def detokenize(self, ids: Sequence[int]) -> str:
        answer = self._server.post(f"{self._root}/detokenize", {"model": self._model, "tokens": list(ids)})
        if (text := fact(answer, str, "prompt")) is None:
            raise ServerFault("/detokenize did not answer with a text")
        return text

    def begin_ids(self) -> tuple[int, ...]:
        return ()  # the template writes it

    def template(self) -> tuple[ChatTemplate, list[str]]:
        return learn_template(self._render), []

    def chat_ids(self, roles: Sequence[tuple[Role, str]]) -> list[int]:
        messages = [{"role": role, "content": content} for role, content in roles]
        body = {"model": self._model, "messages": messages, "add_generation_prompt": True}
        return checked_ids(fact(self._server.post(f"{self._root}/tokenize", body), list, "tokens"), "/tokenize")

    def generation(self, ask: Ask) -> tuple[str, dict[str, Any]]:
        body = {
            "model": self._model,
            "prompt": list(ask.ids),
            "max_tokens": ask.max_new_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            **_sampling(ask.sampling),
            **self._constraint(ask.constraint),
        }
        if ask.logprobs is not None:
            body |= {"logprobs": ask.logprobs, "return_tokens_as_token_ids": True}
        return f"{self._base}/completions", body

    def reader(self) -> Reader:
        return self._chunk

    async def score(self, answer: Answer, ids: Sequence[int], options: Sequence[Sequence[int]]) -> list[float]:
        """All options in one request, each as the end of a prompt whose log-probabilities are asked for."""
        body = self._scoring([[*ids, *option] for option in options], 1)
        told = await answer(f"{self._base}/completions", body)
        choices = {fact(choice, int, "index"): choice for choice in fact(told, list, "choices") or []}
        return [self._option_score(choices.get(place), len(ids), option) for place, option in enumerate(options)]

    async def logprobs(self, answer: Answer, ids: Sequence[int], output: Sequence[int], top: int) -> list[TokenLogprob]:
        body = self._scoring([[*ids, *output]], max(1, top))
        told = await answer(f"{self._base}/completions", body)
        rows = (fact(told, list, "choices", 0, "prompt_logprobs") or [])[len(ids) :]
        if len(rows) != len(output):
            raise ServerFault("vLLM did not tell the log-probabilities of a prompt's tokens")
        return [_prompt_logprob(row, token, top) for row, token in zip(rows, output, strict=True)]

    def means(self) -> list[tuple[Means, str]]:
        field = "guided_" if self.older else "structured_outputs."
        return [("json", f"{field}json"), ("regex", f"{field}regex")]

    def use(self, means: Means) -> None:
        """Nothing depends on it."""

    def limits(self) -> list[str]:
        return ["vLLM's grammars are of a kind that depends on its backend: it takes no Lark constraints from here"]

    def _render(self, chat: Chat) -> str:
        return self.detokenize(self.chat_ids(chat))

    def _scoring(self, prompts: list[list[int]], top: int) -> dict[str, Any]:
        return {
            "model": self._model,
            "prompt": prompts,
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": top,
        }

    def _constraint(self, constraint: Json | Regex | Lark | None) -> dict[str, Any]:
        match constraint:
            case Json(schema_=schema):
                plain = {"allOf": [schema]} if isinstance(schema, bool) else schema
                return {"guided_json": plain} if self.older else {"structured_outputs": {"json": plain}}
            case Regex(pattern=pattern):
                return {"guided_regex": pattern} if self.older else {"structured_outputs": {"regex": pattern}}
            case _:
                return {}

    @staticmethod
    def _option_score(choice: Any, start: int, option: Sequence[int]) -> float:
        rows = fact(choice, list, "prompt_logprobs") or []
        told: list[float | None] = [
            fact(rows, float, start + place, str(token), "logprob") for place, token in enumerate(option)
        ]
        if any(logprob is None for logprob in told):
            raise ServerFault("vLLM did not tell the log-probabilities of a prompt's tokens")
        return sum(logprob for logprob in told if logprob is not None)

    def _chunk(self, event: Event) -> Chunk:
        if "error" in event:
            raise ServerFault(f"vLLM broke off: {fact(event, str, 'error', 'message') or event['error']}")
        ids = fact(event, list, "choices", 0, "token_ids")
        reason = fact(event, str, "choices", 0, "finish_reason")
        if reason not in (None, "stop", "length"):
            raise ServerFault(f"vLLM ended the generation for a reason that is none of its model's: {reason}")
        return Chunk(
            fact(event, str, "choices", 0, "text") or "",
            None if ids is None and event.get("choices") else tuple(checked_ids(ids or [], "/v1/completions")),
            tuple(self._logprobs(fact(event, dict, "choices", 0, "logprobs"))),
            finish=None if reason is None else "length" if reason == "length" else "stop",
            end_ids=1 if reason == "stop" else 0,
            prompt_tokens=fact(event, int, "usage", "prompt_tokens"),
            completion_tokens=fact(event, int, "usage", "completion_tokens"),
            cached_tokens=fact(event, int, "usage", "prompt_tokens_details", "cached_tokens"),
        )

    def _logprobs(self, told: dict[str, Any] | None) -> list[TokenLogprob]:
        tokens, logprobs = fact(told, list, "tokens") or [], fact(told, list, "token_logprobs") or []
        tops = fact(told, list, "top_logprobs") or [None] * len(tokens)
        entries = []
        for name, logprob, top in zip(tokens, logprobs, tops, strict=True):
            token = _token_id(name)
            others = [
                TopLogprob(token=_token_id(other), text=self._text(_token_id(other)), logprob=float(value))
                for other, value in sorted((top or {}).items(), key=lambda entry: -float(entry[1]))
            ]
            entries.append(
                TokenLogprob(token=token, text=self._text(token), logprob=float(logprob), forced=False, top=others)
            )
        return entries

    def _text(self, token: int) -> str:
        if token not in self._texts:
            self._texts[token] = self.detokenize([token])
        return self._texts[token]


def _prompt_logprob(row: Any, token: int, top: int) -> TokenLogprob:
    """An entry of a prompt: a map of token ids, the token's own among the likeliest ones."""
    every = [
        TopLogprob(token=int(name), text=fact(entry, str, "decoded_token") or "", logprob=logprob)
        for name, entry in (row if isinstance(row, dict) else {}).items()
        if name.isdecimal() and (logprob := fact(entry, float, "logprob")) is not None
    ]
    own = next((entry for entry in every if entry.token == token), None)
    if own is None:
        raise ServerFault("vLLM did not tell the log-probabilities of a prompt's tokens")
    every.sort(key=lambda entry: -entry.logprob)
    return TokenLogprob(token=token, text=own.text, logprob=own.logprob, forced=False, top=every[:top])


def _token_id(name: Any) -> int:
    number = str(name).removeprefix(TOKEN_ID)
    if not number.isdecimal():
        raise ServerFault("vLLM told log-probabilities without token ids: it is too old for them")
    return int(number)


def _sampling(sampling: Sampling) -> dict[str, Any]:
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repeat_penalty,
        "seed": checked_seed(sampling.seed, "vLLM"),
    }
