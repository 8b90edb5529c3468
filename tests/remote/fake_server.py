"""Servers on a real socket that answer as vLLM, SGLang and Ollama do, byte by byte a token, and that break on demand.

Their shapes are those of the projects' own protocol files. What they say is a script; a constraint is kept as far as
the tests need: a schema's or a pattern's one text.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

START, END, EOS = 256, 257, 258
MARKUP = {"<|im_start|>": START, "<|im_end|>": END, "<|endoftext|>": EOS}
TEXTS = {token: text for text, token in MARKUP.items()}
KINDS = ("structured_outputs", "guided_json", "guided_regex")

Body = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """`chunks` are written one by one; an event is waited for. The connection closes after the last."""

    status: int = 200
    kind: str = "application/json"
    chunks: tuple[bytes | threading.Event | None, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


def answer(value: object, status: int = 200, **headers: str) -> Reply:
    return Reply(status, chunks=(json.dumps(value).encode(),), headers=tuple(headers.items()))


def stream(*events: object, done: bool = True) -> Reply:
    lines = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    return Reply(kind="text/event-stream", chunks=(*lines, *([b"data: [DONE]\n\n"] if done else [])))


@dataclass
class Script:
    """`says` are the replies in order, the last again and again. `routes` overrides a path's answer. `fields` are the
    constraint fields that this server knows. What was asked is kept in `asked`."""

    says: list[str] = field(default_factory=lambda: ["hello"])
    routes: dict[str, Callable[[Body], Reply]] = field(default_factory=dict)
    fields: tuple[str, ...] = ("structured_outputs",)
    ids: bool = True
    key: str | None = None
    asked: list[tuple[str, Body]] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)
    said: int = 0

    def next(self) -> str:
        text = self.says[min(self.said, len(self.says) - 1)]
        self.said += 1
        return text

    def bodies(self, path: str) -> list[Body]:
        return [body for asked, body in self.asked if asked == path]


Dialect = Callable[[Script, str, Body], Reply]


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, dialect: Dialect, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.dialect = dialect
        self.script = script

    def reply(self, path: str, body: Body, authorization: str | None) -> Reply:
        script = self.script
        script.asked.append((path, body))
        if script.key and authorization != f"Bearer {script.key}":
            return answer({"error": f"Unauthorized: {authorization}"}, 401)
        if path in script.routes:
            return script.routes[path](body)
        return self.dialect(script, path, body)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self._write(self.server.reply(self.path, {}, self.headers.get("authorization")))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._write(self.server.reply(self.path, body, self.headers.get("authorization")))

    def _write(self, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header("content-type", reply.kind)
        self.send_header("connection", "close")
        self.close_connection = True
        for name, value in reply.headers:
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        try:
            for chunk in reply.chunks:
                if isinstance(chunk, threading.Event):
                    chunk.wait(20)
                else:
                    self.wfile.write(chunk)
                    self.wfile.flush()
        except OSError:
            self.server.script.gone.set()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def running(dialect: Dialect, script: Script) -> Iterator[str]:
    """A server; gives its address."""
    server = Server(dialect, script)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def encode(text: str) -> list[int]:
    """As a Hugging Face tokenizer does: markup in a text becomes tokens, whoever wrote it."""
    ids: list[int] = []
    while text:
        markup = next((name for name in MARKUP if text.startswith(name)), None)
        ids += [MARKUP[markup]] if markup else list(text[0].encode())
        text = text[len(markup or text[0]) :]
    return ids


def decode(ids: list[int]) -> str:
    out = bytearray()
    for token in ids:
        out += TEXTS[token].encode() if token in TEXTS else bytes([token])
    return out.decode("utf-8", "replace")


def shown(ids: list[int]) -> str:
    """The text of an output as far as its characters are whole; the end of turn is none of it."""
    return decode([token for token in ids if token != EOS]).rstrip("�")


def chat(messages: list[dict[str, str]]) -> str:
    turns = [f"<|im_start|>{message['role']}\n{message['content'].strip()}<|im_end|>\n" for message in messages]
    return "".join(turns) + "<|im_start|>assistant\n"


def constrained(constraint: Any) -> str | None:
    """The one text of a trial's constraint; None for another one, which the script answers."""
    if isinstance(constraint, str) and constraint.startswith("{"):
        constraint = json.loads(constraint)
    if constraint == "zq[7]":
        return "zq7"
    if isinstance(constraint, dict) and constraint.get("enum") == ["zq7"]:
        return '"zq7"'
    return None


def vllm(script: Script, path: str, body: Body) -> Reply:
    match path:
        case "/v1/models":
            card = {
                "id": "org/model",
                "object": "model",
                "owned_by": "vllm",
                "root": "org/model",
                "max_model_len": 2048,
            }
            return answer({"object": "list", "data": [card]})
        case "/version":
            return answer({"version": "0.11.0"})
        case "/tokenize":
            ids = encode(chat(body["messages"]) if "messages" in body else body["prompt"])
            return answer({"count": len(ids), "max_model_len": 2048, "tokens": ids, "token_strs": None})
        case "/detokenize":
            return answer({"prompt": decode(body["tokens"])})
        case "/v1/completions" if "prompt_logprobs" in body:
            return answer({"choices": [_vllm_scored(place, ids) for place, ids in enumerate(body["prompt"])]})
        case "/v1/completions":
            return stream(*_vllm_events(script, body))
    return answer({"detail": "Not Found"}, 404)


def _vllm_scored(place: int, ids: list[int]) -> Body:
    """A token's log-probability is minus a hundredth of its id, and the likeliest token stands beside it."""
    rows = [
        None,
        *({str(token): _logprob(token), "0": {"logprob": -0.1, "rank": 1, "decoded_token": "\0"}} for token in ids[1:]),
    ]
    return {"index": place, "text": "x", "finish_reason": "length", "prompt_logprobs": rows}


def _logprob(token: int) -> Body:
    return {"logprob": -token / 100, "rank": 2, "decoded_token": decode([token])}


def _vllm_events(script: Script, body: Body) -> Iterator[Body]:
    known = body.get("structured_outputs", {}) if "structured_outputs" in script.fields else {}
    given = [*known.values(), *(body[name] for name in KINDS[1:] if name in body and name in script.fields)]
    text = (constrained(given[0]) if given else None) or script.next()
    ids = [*encode(text), EOS]
    limit = body["max_tokens"]
    for place, token in enumerate(ids[:limit]):
        ends = token == EOS or place == limit - 1
        choice: Body = {"index": 0, "text": shown(ids[: place + 1])[len(shown(ids[:place])) :], "logprobs": None}
        choice["finish_reason"] = ("stop" if token == EOS else "length") if ends else None
        if script.ids:
            choice["token_ids"] = [token]
        if "logprobs" in body:
            choice["logprobs"] = {
                "tokens": [f"token_id:{token}"],
                "token_logprobs": [-0.5],
                "top_logprobs": [{f"token_id:{token}": -0.5, "token_id:65": -2.5}],
                "text_offset": [0],
            }
        yield {"id": "cmpl-1", "object": "text_completion", "model": "org/model", "choices": [choice]}
    counts = {"prompt_tokens": len(body["prompt"]), "completion_tokens": min(limit, len(ids))}
    usage = counts | {"total_tokens": sum(counts.values()), "prompt_tokens_details": {"cached_tokens": 5}}
    yield {"id": "cmpl-1", "object": "text_completion", "model": "org/model", "choices": [], "usage": usage}


def sglang(script: Script, path: str, body: Body) -> Reply:
    match path:
        case "/v1/models":
            card = {"id": "org/model", "object": "model", "owned_by": "sglang", "max_model_len": 2048}
            return answer({"object": "list", "data": [card]})
        case "/get_model_info":
            return answer({"model_path": "org/model", "tokenizer_path": "org/model", "is_generation": True})
        case "/get_server_info":
            return answer({"model_path": "org/model", "version": "0.5.10"})
        case "/tokenize":
            ids = encode(chat(body["messages"]) if "messages" in body else body["prompt"])
            return answer({"tokens": ids, "count": len(ids), "max_model_len": 2048})
        case "/detokenize":
            kept = [
                token for token in body["tokens"] if token not in TEXTS or not body.get("skip_special_tokens", True)
            ]
            return answer({"text": decode(kept)})
        case "/generate" if "logprob_start_len" in body:
            return answer([_sglang_scored(ids, body["logprob_start_len"]) for ids in body["input_ids"]])
        case "/generate":
            return stream(*_sglang_events(script, body))
    return answer({"detail": "Not Found"}, 404)


def _sglang_scored(ids: list[int], start: int) -> Body:
    rows = [[None if place == 0 else -token / 100, token, decode([token])] for place, token in enumerate(ids)][start:]
    tops = [[[-0.1, 0, "\0"]] for _ in rows]
    meta = {"input_token_logprobs": rows, "input_top_logprobs": tops, "completion_tokens": 1}
    return {"text": "x", "meta_info": meta}


def _sglang_events(script: Script, body: Body) -> Iterator[Body]:
    """Text, ids and log-probabilities repeat what came before."""
    parameters = body["sampling_params"]
    given = [parameters[name] for name in ("json_schema", "regex") if name in parameters and name in script.fields]
    text = (constrained(given[0]) if given else None) or script.next()
    ids = [*encode(text), EOS]
    limit = parameters["max_new_tokens"]
    for count in range(1, min(limit, len(ids)) + 1):
        told = ids[:count]
        meta: Body = {
            "id": "1",
            "prompt_tokens": len(body["input_ids"]),
            "completion_tokens": count,
            "cached_tokens": 3,
            "finish_reason": None,
        }
        if told[-1] == EOS:
            meta["finish_reason"] = {"type": "stop", "matched": EOS}
        elif count == limit:
            meta["finish_reason"] = {"type": "length", "length": limit}
        if body.get("return_logprob"):
            meta["output_token_logprobs"] = [[-0.5, token, decode([token])] for token in told]
            meta["output_top_logprobs"] = [[[-0.5, token, decode([token])], [-2.5, 65, "A"]] for token in told]
        yield {"text": shown(told), "output_ids": told, "meta_info": meta}


def ollama(script: Script, path: str, body: Body) -> Reply:
    match path:
        case "/v1/models":
            return answer(
                {"object": "list", "data": [{"id": "llama3.2:latest", "object": "model", "owned_by": "library"}]}
            )
        case "/api/version":
            return answer({"version": "0.12.3"})
    return Reply(404, "text/plain", (b"404 page not found",))


def plain(script: Script, path: str, body: Body) -> Reply:
    """A server of which only the OpenAI-compatible endpoints are there."""
    if path == "/v1/models":
        return answer({"object": "list", "data": [{"id": "gpt", "object": "model"}]})
    return answer({"error": {"message": "Not found", "type": "invalid_request_error"}}, 404)
