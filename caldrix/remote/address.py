"""`openai:BASE_URL#MODEL` → where the server is and which of its models is meant. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from caldrix.protocol.errors import Refused

PREFIX: Final = "openai:"
USAGE: Final = "write openai:BASE_URL#MODEL, for example openai:http://127.0.0.1:8080/v1#qwen2.5-coder"


@dataclass(frozen=True)
class Address:
    """`root` is the server without a slash at the end, `base` where its OpenAI-compatible endpoints are.

    `model` is empty where the reference names none.
    """

    root: str
    base: str
    model: str
    loopback: bool
    encrypted: bool

    def notes(self) -> list[str]:
        """What a person should know before code goes there."""
        if self.loopback:
            return []
        if self.encrypted:
            return [f"prompts leave this machine: they are sent to {self.root}, encrypted"]
        return [f"prompts, and with them your code, leave this machine unencrypted: they are sent to {self.root}"]


def is_remote(reference: str) -> bool:
    return reference.startswith(PREFIX)


def parse_address(reference: str) -> Address:
    """Raises Refused("bad_request") for what is no address, and for one that holds a password."""
    url, _, model = reference.removeprefix(PREFIX).partition("#")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise Refused("bad_request", f"the address in {_shown(reference)} cannot be read: {error}; {USAGE}") from error
    if parts.username or parts.password:
        raise Refused(
            "bad_request",
            f"the address of {host} holds a user name or password, which would be shown to every client: take it out, "
            "and put a key into $CALDRIX_OPENAI_API_KEY",
        )
    if parts.scheme not in ("http", "https") or not host or parts.query:
        raise Refused("bad_request", f"{_shown(reference)} is no address of a server: {USAGE}")
    return _address(parts, host, port, model)


def _address(parts: SplitResult, host: str, port: int | None, model: str) -> Address:
    where = f"[{host}]" if ":" in host else host
    server = f"{parts.scheme}://{where}" + (f":{port}" if port is not None else "")
    path = parts.path.rstrip("/")
    root = server + path.removesuffix("/v1")
    return Address(root, f"{root}/v1", model, _is_loopback(host), parts.scheme == "https")


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(reference: str) -> str:
    """The reference without what stands before an @, which may be a password."""
    head, mark, tail = reference.rpartition("@")
    return f"openai:…@{tail}" if mark and "://" in head else reference
