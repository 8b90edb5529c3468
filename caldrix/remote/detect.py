"""Which server this is, found out by asking it, and which of its models is meant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from caldrix.protocol.errors import Refused
from caldrix.remote.dialect import Dialect
from caldrix.remote.llama_server import LlamaServer
from caldrix.remote.server import Server, ServerFault, fact
from caldrix.remote.sglang import Sglang
from caldrix.remote.vllm import Vllm

NO_ENDPOINT: Final = (200, 400, 404, 405, 422, 501)
"""How servers say that they have no such endpoint; 200 with a page that is not JSON is one of the ways."""


@dataclass(frozen=True)
class Found:
    """A dialect, the model's name on the server, and the server's version as it tells it."""

    dialect: Dialect
    model: str
    version: str


def detect(server: Server) -> Found:
    """Raises Refused: model_not_found where the server has no such model, model_refused for a server that cannot be
    reached or cannot serve a member."""
    try:
        models = server.get(f"{server.address.base}/models")
        return _found(server, models)
    except ServerFault as fault:
        raise Refused("model_refused", str(fault)) from fault


def _found(server: Server, models: Any) -> Found:
    root = server.address.root
    properties = _asked(server, f"{root}/props")
    if fact(properties, dict, "default_generation_settings") is not None:
        return _llama(server, models, properties)
    if (info := _sglang_info(server)) is not None:
        model = _chosen(models, server)
        return Found(Sglang(server, model, _window(models, model)), model, info)
    if (version := fact(_asked(server, f"{root}/api/version"), str, "version")) is not None:
        raise _no_tokenizer(
            "Ollama", version, "serve the same GGUF file with llama-server, or load it here by its path"
        )
    if (version := fact(_asked(server, f"{root}/version"), str, "version")) is not None:
        return _vllm(server, models, version)
    raise _no_tokenizer("the server", "", "use llama-server, vLLM or SGLang")


def _llama(server: Server, models: Any, properties: Any) -> Found:
    model = _chosen(models, server)
    window = fact(properties, int, "default_generation_settings", "n_ctx")
    if window is None:
        raise Refused("model_refused", f"llama-server at {server.address.root} does not tell its context size (n_ctx)")
    for endpoint, body in (("/tokenize", {"content": "a"}), ("/detokenize", {"tokens": [1]})):
        _wanted(server, endpoint, body, "llama-server")
    return Found(LlamaServer(server, window, properties), model, fact(properties, str, "build_info") or "unknown")


def _vllm(server: Server, models: Any, version: str) -> Found:
    model = _chosen(models, server)
    _wanted(server, "/tokenize", {"model": model, "prompt": "a"}, "vLLM")
    _wanted(server, "/detokenize", {"model": model, "tokens": [1]}, "vLLM")
    return Found(Vllm(server, model, _window(models, model)), model, version)


def _sglang_info(server: Server) -> str | None:
    """SGLang's version, None for another server. It has no name of its own but in the owner of its models."""
    root = server.address.root
    names = ("model_info", "get_model_info")
    if not any(fact(_asked(server, f"{root}/{name}"), str, "model_path") for name in names):
        return None
    _wanted(server, "/tokenize", {"messages": [{"role": "user", "content": "a"}]}, "SGLang")
    _wanted(server, "/detokenize", {"tokens": [1]}, "SGLang")
    told = (fact(_asked(server, f"{root}/{name}"), str, "version") for name in ("server_info", "get_server_info"))
    return next((version for version in told if version), "unknown")


def _asked(server: Server, url: str) -> Any:
    """The answer, or None where the server has no such endpoint."""
    try:
        return server.get(url)
    except ServerFault as fault:
        if fault.status not in NO_ENDPOINT:
            raise
        return None


def _wanted(server: Server, endpoint: str, body: dict[str, Any], name: str) -> None:
    """Raises Refused where an endpoint is missing without which nothing can be counted."""
    url = f"{server.address.root}{endpoint}"
    try:
        server.post(url, body)
    except ServerFault as fault:
        raise Refused(
            "model_refused",
            f"{name} at {server.address.root} does not serve {endpoint} as it is needed to count tokens ({fault}): "
            "update it, or let it serve that endpoint",
        ) from fault


def _chosen(models: Any, server: Server) -> str:
    """The name that the server calls the model by."""
    wanted = server.address.model
    served = {
        name: identity
        for entry in fact(models, list, "data") or []
        if (identity := fact(entry, str, "id"))
        for name in [identity, *(alias for alias in fact(entry, list, "aliases") or [] if isinstance(alias, str))]
    }
    if not wanted and len(set(served.values())) == 1:
        return next(iter(served.values()))
    if wanted in served:
        return served[wanted]
    by_file = {PurePath(name).name: identity for name, identity in served.items()}
    if wanted in by_file:
        return by_file[wanted]
    known = ", ".join(sorted(set(served.values()))) or "none"
    what = f"no model {wanted!r}" if wanted else "several models: name one after #"
    raise Refused("model_not_found", f"{server.address.root} serves {what}; it has: {known}")


def _window(models: Any, model: str) -> int:
    for entry in fact(models, list, "data") or []:
        if fact(entry, str, "id") == model and (window := fact(entry, int, "max_model_len")) is not None:
            return window
    raise Refused("model_refused", f"the server does not tell the window of {model} (max_model_len in /v1/models)")


def _no_tokenizer(name: str, version: str, advice: str) -> Refused:
    return Refused(
        "model_refused",
        f"{name}{' ' + version if version else ''} has no endpoint that tokenises text (/tokenize) and renders chats, "
        f"so tokens could only be guessed: {advice}",
    )
