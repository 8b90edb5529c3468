"""The one seam to a server: requests, answers and what goes wrong with them, each as a sentence.

No redirect is followed, certificates are checked, and the key is in no sentence.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final, TypeVar

import httpx2

from caldrix.remote.address import Address
from caldrix.remote.events import Event, Events, MalformedStream

CONNECT_S: Final = 10.0
ANSWER_S: Final = 60.0
"""Of a call that is no generation; also what a stream may stay silent."""
MAX_QUOTED: Final = 300
KEY_NAMES: Final = ("CALDRIX_OPENAI_API_KEY", "OPENAI_API_KEY")

Fact = TypeVar("Fact")


class ServerFault(Exception):
    """The server cannot be reached, refuses, or breaks off. `status` is its HTTP status, None where there was none."""

    def __init__(self, sentence: str, status: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status


class Server:
    """Calls to one server. `get` and `post` block and may be used from any thread; `answer` and `stream` belong to the
    event loop that `close_streams` is called on."""

    def __init__(self, address: Address, key: str | None, stall_s: float = ANSWER_S) -> None:
        self.address = address
        self._key = key
        self._stall_s = stall_s
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = httpx2.Timeout(stall_s, connect=min(CONNECT_S, stall_s), pool=None)
        # A proxy of the environment is for other machines.
        trust = not address.loopback
        self._calls = httpx2.Client(headers=headers, timeout=timeout, trust_env=trust, verify=_certificates())
        self._streams = httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=trust, verify=_certificates())

    def get(self, url: str) -> Any:
        """The answer as JSON. Raises ServerFault."""
        return self._call("GET", url, None)

    def post(self, url: str, body: Mapping[str, Any]) -> Any:
        """The answer as JSON. Raises ServerFault."""
        return self._call("POST", url, body)

    async def answer(self, url: str, body: Mapping[str, Any]) -> Any:
        """The whole answer to a generation that is not streamed, as JSON. Raises ServerFault."""
        try:
            response = await self._streams.post(url, json=body)
        except httpx2.HTTPError as error:
            raise self._unreached(error) from error
        return self._json(url, response)

    @asynccontextmanager
    async def stream(
        self, url: str, body: Mapping[str, Any], patience_s: float = 0.0
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """The events of a generation; an answer that is not streamed is one event. `patience_s` is how much longer than
        usual it may stay silent. Leaving it closes the connection, which is how a server is told to stop."""
        timeout = httpx2.Timeout(self._stall_s + patience_s, connect=min(CONNECT_S, self._stall_s), pool=None)
        try:
            async with self._streams.stream("POST", url, json=body, timeout=timeout) as response:
                if response.status_code != httpx2.codes.OK:
                    await response.aread()
                    raise self._refused(url, response)
                yield self._events(response)
        except httpx2.HTTPError as error:
            raise self._unreached(error) from error

    async def close_streams(self) -> None:
        await self._streams.aclose()

    def close(self) -> None:
        self._calls.close()

    async def _events(self, response: httpx2.Response) -> AsyncIterator[Event]:
        if "json" in response.headers.get("content-type", ""):
            await response.aread()
            yield self._json(str(response.url), response)
            return
        events = Events()
        try:
            async for piece in response.aiter_bytes():
                for event in events.feed(piece):
                    yield event
        except MalformedStream as error:
            raise ServerFault(
                f"{self.address.root} sent what is no event stream: {self._quoted(str(error))}"
            ) from error

    def _call(self, method: str, url: str, body: Mapping[str, Any] | None) -> Any:
        try:
            response = self._calls.request(method, url, json=body)
        except httpx2.HTTPError as error:
            raise self._unreached(error) from error
        return self._json(url, response)

    def _json(self, url: str, response: httpx2.Response) -> Any:
        if response.status_code != httpx2.codes.OK:
            raise self._refused(url, response)
        try:
            return response.json()
        except ValueError as error:
            raise ServerFault(
                f"{url} answered with what is not JSON: {self._quoted(response.text)!r}", status=response.status_code
            ) from error

    def _refused(self, url: str, response: httpx2.Response) -> ServerFault:
        status = response.status_code
        said = self._quoted(_message(response))
        if response.is_redirect:
            target = self._quoted(response.headers.get("location", ""))
            return ServerFault(f"{url} redirects to {target!r}, which is not followed: give that address", status)
        if status in (401, 403):
            names = " or ".join(f"${name}" for name in KEY_NAMES)
            key = "refuses the key that was sent" if self._key else "wants a key"
            return ServerFault(f"{url} {key} ({status}): set {names} where the pool is started", status)
        if status == 429:
            after = response.headers.get("retry-after", "")
            wait = f"in {self._quoted(after)} s" if after.isdecimal() else "later"
            return ServerFault(f"{url} has too many requests (429): try again {wait}. {said}".rstrip(), status)
        return ServerFault(f"{url} answered {status}: {said or response.reason_phrase}", status)

    def _unreached(self, error: httpx2.HTTPError) -> ServerFault:
        root = self.address.root
        match error:
            case httpx2.ConnectTimeout() | httpx2.ConnectError():
                return ServerFault(f"no server answers at {root} ({self._quoted(str(error)) or 'timed out'}): start it")
            case httpx2.TimeoutException():
                return ServerFault(f"{root} sent nothing for {self._stall_s:g} s: look whether it still works")
            case _:
                said = self._quoted(str(error)) or type(error).__name__
                return ServerFault(f"the connection to {root} broke: {said}")

    def _quoted(self, text: str) -> str:
        line = " ".join(text.split())
        if self._key:
            line = line.replace(self._key, "…")
        return line if len(line) <= MAX_QUOTED else line[:MAX_QUOTED] + "…"


@cache
def _certificates() -> ssl.SSLContext:
    """Reading them takes a while: once is enough."""
    return httpx2.create_ssl_context()


def api_key() -> str | None:
    """The key of the pool's environment."""
    return next((value for name in KEY_NAMES if (value := os.environ.get(name, "").strip())), None)


def fact(value: Any, kind: type[Fact], *path: str | int) -> Fact | None:
    """What stands at `path` in an answer, or None where nothing of this kind does. A bool is no number."""
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
    wanted = (int, float) if kind is float else kind
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        return None
    return value  # type: ignore[return-value]  # an int stands for a float


def _message(response: httpx2.Response) -> str:
    """What the server says is wrong: each has its own shape for it."""
    try:
        body = response.json()
    except ValueError:
        return response.text
    for path in (("error", "message"), ("error",), ("message",), ("detail",)):
        if said := fact(body, str, *path):
            return said
    return response.text
