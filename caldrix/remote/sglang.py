"""SGLang: prompts as token ids to its own `/generate`, its tokenizer by `/tokenize` and `/detokenize`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from caldrix.engine.strategy import ChatTemplate
from caldrix.protocol.messages import Json, Lark, Regex, Role, Sampling, TokenLogprob, TopLogprob
from caldrix.remote.chattemplate import Chat, learn_template
from caldrix.remote.dialect import Answer, Ask, Chunk, Means, Reader, refuse_field
from caldrix.remote.events import Event
from caldrix.remote.llama_server import checked_ids
from caldrix.remote.server import Server, ServerFault, fact


class Sglang:
    """See `caldrix.remote.dialect.Dialect`."""

    name = "SGLang"
    parses_markup = True

    def __init__(self, server: Server, model: str, window: int) -> None:
        self.window = window
        self._server = server
        self._model = model
        self._root = server.address.root

    def tokenize(self, text: str, *, markup: bool = False) -> list[int]:
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        return checked_ids(fact(self._server.post(f"{self._root}/tokenize", body), list, "tokens"), "/tokenize")

    def detokenize(self, ids: Sequence[int]) -> str:
        body = {"model": self._model, "tokens": list(ids), "skip_special_tokens": False}
        if (text := fact(self._server.post(f"{self._root}/detokenize", body), str, "text")) is None:
            raise ServerFault("/detokenize did not answer with a text")
        return text

    def begin_ids(self) -> tuple[int, ...]:
        return ()  # the template writes it

    def template(self) -> tuple[ChatTemplate, list[str]]:
        return learn_template(self._render), []

    def chat_ids(self, roles: Sequence[tuple[Role, str]]) -> list[int]:
        messages = [{"role": role, "content": content} for role, content in roles]
        body = {"model": self._model, "messages": messages, "add_special_tokens": False}
        return checked_ids(fact(self._server.post(f"{self._root}/tokenize", body), list, "tokens"), "/tokenize")

    def generation(self, ask: Ask) -> tuple[str, dict[str, Any]]:
        parameters = {
            "max_new_tokens": ask.max_new_tokens,
            **_sampling(ask.sampling),
            **_constraint(ask.constraint),
        }
        body: dict[str, Any] = {"input_ids": list(ask.ids), "sampling_params": parameters, "stream": True}
        if ask.logprobs is not None:
            body |= {"return_logprob": True, "top_logprobs_num": ask.logprobs, "return_text_in_logprobs": True}
        return f"{self._root}/generate", body

    def reader(self) -> Reader:
        return _Reader().chunk

    async def score(self, answer: Answer, ids: Sequence[int], options: Sequence[Sequence[int]]) -> list[float]:
        """All options in one request, each as the end of a prompt whose last log-probabilities are asked for."""
        body = _scoring([[*ids, *option] for option in options], len(ids))
        told = await answer(f"{self._root}/generate", body)
        rows = [fact(told, list, place, "meta_info", "input_token_logprobs") or [] for place in range(len(options))]
        return [_option_score(row, option) for row, option in zip(rows, options, strict=True)]

    async def logprobs(self, answer: Answer, ids: Sequence[int], output: Sequence[int], top: int) -> list[TokenLogprob]:
        body = _scoring([[*ids, *output]], len(ids)) | {"top_logprobs_num": top, "return_text_in_logprobs": True}
        told = await answer(f"{self._root}/generate", body)
        meta = fact(told, dict, 0, "meta_info") or {}
        rows = (fact(meta, list, "input_token_logprobs") or [])[-len(output) :]
        tops = (fact(meta, list, "input_top_logprobs") or [[]] * len(rows))[-len(output) :]
        _option_score(rows, output)  # they are the output's own, or it is said
        return [_logprob(row, others) for row, others in zip(rows, tops, strict=True)]

    def means(self) -> list[tuple[Means, str]]:
        return [("json", "json_schema"), ("regex", "regex")]

    def use(self, means: Means) -> None:
        """Nothing depends on it."""

    def limits(self) -> list[str]:
        return [
            "SGLang's grammars are EBNF: it takes no Lark constraints from here",
            "SGLang is sent no seed: two sampled generations may differ",
        ]

    def _render(self, chat: Chat) -> str:
        return self.detokenize(self.chat_ids(chat))


class _Reader:
    """SGLang repeats the text and the log-probabilities from their start, unless it was started to send only what is
    new: then a text does not begin with the one before it."""

    def __init__(self) -> None:
        self._text = ""
        self._ids = 0
        self._entries = 0
        self._incremental = False

    def chunk(self, event: Event) -> Chunk:
        if "error" in event:
            raise ServerFault(f"SGLang broke off: {fact(event, str, 'error', 'message') or event['error']}")
        if not event:
            return Chunk()
        meta = fact(event, dict, "meta_info") or {}
        reason = fact(meta, str, "finish_reason", "type")
        if reason not in (None, "stop", "length"):
            said = fact(meta, str, "finish_reason", "message") or reason
            raise ServerFault(f"SGLang ended the generation for a reason that is none of its model's: {said}")
        text, told = fact(event, str, "text") or "", fact(event, list, "output_ids")
        self._incremental = self._incremental or not text.startswith(self._text)
        ids = None if told is None else self._new_ids(checked_ids(told, "/generate"))
        matched = fact(meta, int, "finish_reason", "matched")
        return Chunk(
            self._new_text(text),
            None if ids is None else tuple(ids),
            tuple(self._new_logprobs(meta)),
            finish=None if reason is None else "length" if reason == "length" else "stop",
            end_ids=1 if reason == "stop" and told and matched == told[-1] else 0,
            prompt_tokens=fact(meta, int, "prompt_tokens"),
            completion_tokens=fact(meta, int, "completion_tokens"),
            cached_tokens=fact(meta, int, "cached_tokens"),
        )

    def _new_text(self, text: str) -> str:
        new = text if self._incremental else text[len(self._text) :]
        self._text += new
        return new

    def _new_ids(self, ids: list[int]) -> list[int]:
        new = ids if self._incremental else ids[self._ids :]
        self._ids += len(new)
        return new

    def _new_logprobs(self, meta: dict[str, Any]) -> list[TokenLogprob]:
        entries = fact(meta, list, "output_token_logprobs") or []
        tops = fact(meta, list, "output_top_logprobs") or [[]] * len(entries)
        start = 0 if self._incremental else self._entries
        pairs = list(zip(entries, tops, strict=False))[start:]
        self._entries += len(pairs)
        return [_logprob(entry, top) for entry, top in pairs]


def _logprob(entry: Any, top: Any) -> TokenLogprob:
    others = [TopLogprob(token=token, text=text, logprob=value) for token, text, value in map(_entry, top or [])]
    token, text, value = _entry(entry)
    return TokenLogprob(token=token, text=text, logprob=value, forced=False, top=others)


def _entry(entry: Any) -> tuple[int, str, float]:
    value, token = fact(entry, float, 0), fact(entry, int, 1)
    if value is None or token is None:
        raise ServerFault("SGLang told log-probabilities in a form that is not known")
    return token, fact(entry, str, 2) or "", value


def _scoring(prompts: list[list[int]], start: int) -> dict[str, Any]:
    return {
        "input_ids": prompts,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        "return_logprob": True,
        "logprob_start_len": max(0, start - 1),
    }


def _option_score(row: list[Any], option: Sequence[int]) -> float:
    tail = row[-len(option) :]
    if [fact(entry, int, 1) for entry in tail] != list(option):
        raise ServerFault("SGLang did not tell the log-probabilities of a prompt's tokens")
    return sum(_entry(entry)[2] for entry in tail)


def _constraint(constraint: Json | Regex | Lark | None) -> dict[str, Any]:
    match constraint:
        case Json(schema_=schema):
            return {"json_schema": json.dumps({"allOf": [schema]} if isinstance(schema, bool) else schema)}
        case Regex(pattern=pattern):
            return {"regex": pattern}
        case _:
            return {}


def _sampling(sampling: Sampling) -> dict[str, Any]:
    if sampling.seed:
        raise refuse_field("seed", "SGLang", "it takes a seed in its deterministic mode only; leave it 0")
    if sampling.repeat_penalty > 2:
        raise refuse_field("repeat_penalty", "SGLang", f"{sampling.repeat_penalty:g} is more than its largest, 2")
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repeat_penalty,
    }
