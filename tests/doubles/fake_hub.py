"""A hub of models on this machine: the few answers of the real one that a download needs, and ways to break off.

Files come by a redirect to another host name, as the real hub sends one to its store.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

REVISION = "0123456789abcdef0123456789abcdef01234567"
BOUND_S = 30.0
CHUNK_BYTES = 1 << 16


@dataclass
class FakeHub:
    """`repos` maps a repository's name to its files. A file in `lies` is described with that SHA-256.

    While `stop_at` is set, an answer stands still there until `go_on` is set; with `break_at` it is cut there, once.
    """

    url: str
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    lies: dict[str, str] = field(default_factory=dict)
    status: int | None = None
    stop_at: int | None = None
    break_at: int | None = None
    ranges: bool = True
    go_on: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def gets(self, name: str) -> list[dict[str, str]]:
        """The headers of every request for a file's bytes."""
        return [headers for path, headers in self.asked if path.startswith("/store/") and path.endswith(name)]

    def described(self, repo: str) -> dict[str, object]:
        siblings = [
            {
                "rfilename": name,
                "size": len(data),
                "blobId": "0" * 40,
                "lfs": {"sha256": self.lies.get(name) or sha256(data), "size": len(data), "pointerSize": 134},
            }
            for name, data in self.repos[repo].items()
        ]
        return {"id": repo, "sha": REVISION, "siblings": siblings, "tags": [], "private": False}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """Serves until the block is left."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    hub = FakeHub(f"http://127.0.0.1:{server.server_port}")
    server.hub = hub  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join(BOUND_S)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        hub: FakeHub = self.server.hub  # type: ignore[attr-defined]
        path = unquote(urlsplit(self.path).path)
        hub.asked.append((path, {name.lower(): value for name, value in self.headers.items()}))
        words = path.strip("/").split("/")
        if hub.status:
            return self._answer(hub.status)
        if words[:2] == ["api", "models"]:
            return self._describe(hub, "/".join(words[2:4]))
        if words[0] == "store":
            return self._send(hub, hub.repos["/".join(words[1:3])]["/".join(words[3:])])
        assert words[2:4] == ["resolve", REVISION], path
        port = self.server.server_address[1]
        place = f"http://localhost:{port}/store/{words[0]}/{words[1]}/{'/'.join(words[4:])}"
        return self._answer(302, {"Location": place})

    def _describe(self, hub: FakeHub, repo: str) -> None:
        if repo in hub.gated:
            return self._answer(401, {"X-Error-Code": "GatedRepo"})
        if repo not in hub.repos:
            return self._answer(404, {"X-Error-Code": "RepoNotFound"})
        return self._answer(200, {"Content-Type": "application/json"}, json.dumps(hub.described(repo)).encode())

    def _send(self, hub: FakeHub, data: bytes) -> None:
        start = 0
        if hub.ranges and (asked := self.headers.get("Range")):
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        with contextlib.suppress(OSError):  # the other end may be killed
            self._stream(hub, data, start)

    def _stream(self, hub: FakeHub, data: bytes, start: int) -> None:
        for at in range(start, len(data), CHUNK_BYTES):
            if hub.stop_at is not None and at >= hub.stop_at:
                hub.go_on.wait(BOUND_S)
            if hub.break_at is not None and at >= hub.break_at:
                hub.break_at = None
                self.close_connection = True
                self.connection.shutdown(2)
                return
            self.wfile.write(data[at : at + CHUNK_BYTES])
            self.wfile.flush()

    def _answer(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
