"""The rules of the wire, on a real process: every request gets one answer, and no message ends the server."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from aerix_server.protocol.methods import METHODS
from tests.lsp.lsp_client import LspClient


def rid(number: Any, method: Any = "aerix/session/list", **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, **more}


async def test_initialize_announces_what_is_spoken(server: LspClient) -> None:
    result = await server.initialize()
    aerix = result["capabilities"]["experimental"]["aerix"]
    assert aerix["protocol"] == 1
    assert set(aerix["methods"]) == set(METHODS)
    assert {"session.start", "turn.delta", "request.end"} <= set(aerix["events"])
    assert result["capabilities"]["textDocumentSync"]["openClose"] is True
    assert await server.stop() == 0


@pytest.mark.parametrize("method", ["aerix/session/list", "shutdown", "workspace/executeCommand", "aerix/nope"])
async def test_requests_before_initialize_are_refused(server: LspClient, method: str) -> None:
    assert (await server.error(method, {}))["code"] == -32002
    await server.initialize()


async def test_initialize_twice_is_an_invalid_request(lsp: LspClient) -> None:
    assert (await lsp.error("initialize", {"capabilities": {}, "processId": None, "rootUri": None}))["code"] == -32600


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"aerix": {"client": {"name": 7, "version": "1"}}}, "client.name"),
        ({"aerix": {"client": {"name": "a", "version": "1"}, "settings": {"bad": 1}}}, "bad"),
        ({"aerix": 7}, "params"),
        ({"aerix": {"client": {"name": "a", "version": "1"}, "capabilities": {"planGate": "yes"}}}, "planGate"),
    ],
)
async def test_wrong_options_are_named(server: LspClient, options: Any, field: str) -> None:
    base = {"processId": None, "rootUri": None, "capabilities": {}}
    error = await server.error("initialize", {**base, "initializationOptions": options})
    assert error["code"] == -32602
    assert field in error["message"]
    for given in (None, {}, {"other": 1}):
        answer = await server.reply("initialize", {**base, "initializationOptions": given})
        assert "result" in answer or answer["error"]["code"] == -32600


@pytest.mark.parametrize(
    ("method", "params", "code", "word"),
    [
        ("aerix/nope", {}, -32601, "aerix/nope"),
        ("$/nope", {}, -32601, "nope"),
        ("textDocument/hover", {}, -32601, "hover"),
        ("workspace/executeCommand", 7, -32602, "params"),
        ("workspace/executeCommand", {}, -32602, "command"),
        ("workspace/executeCommand", {"command": "x"}, -32602, "x"),
        ("aerix/session/new", {}, -32602, "cwd"),
        ("aerix/session/new", {"cwd": 7}, -32602, "cwd"),
        ("aerix/session/new", {"cwd": "relative"}, -32602, "cwd"),
        ("aerix/session/new", {"cwd": "/no/such/folder"}, -32602, "/no/such/folder"),
        ("aerix/session/new", [], -32602, "object"),
        ("aerix/session/new", 7, -32602, "object"),
        ("aerix/session/list", {"limit": 0}, -32602, "limit"),
        ("aerix/session/list", {"limit": "3"}, -32602, "limit"),
        ("aerix/session/attach", {"session": "s1", "afterSeq": -1}, -32602, "afterSeq"),
        ("aerix/request/start", {"session": "x"}, -32602, "prompt"),
        ("aerix/request/start", {"session": "x", "prompt": "p", "route": "up"}, -32602, "route"),
        ("aerix/request/start", {"session": "x", "prompt": "p", "maxTurns": True}, -32602, "maxTurns"),
        ("aerix/request/start", {"session": "x", "prompt": "p", "outputSchema": {"type": 1}}, -32602, "type"),
        ("aerix/request/start", {"session": "nope", "prompt": "p"}, 4000, "nope"),
        ("aerix/request/wait", {"session": 1, "request": []}, -32602, "session"),
        ("aerix/session/transcript", {"session": "nope"}, 4000, "nope"),
        ("aerix/session/attach", {"session": "nope"}, 4000, "nope"),
        ("aerix/pool/status", {}, -32603, "log"),
    ],
)
async def test_wrong_calls_are_answered(lsp: LspClient, method: str, params: Any, code: int, word: str) -> None:
    error = await lsp.error(method, params)
    text = json.dumps(error)
    assert error["code"] == code
    assert word in error["message"]
    assert not any(leak in text for leak in ("Traceback", ".py", "secret"))
    if code == 4000:
        assert error["data"]["code"] == "session_not_found"
    if code == -32603:
        assert "data" not in error
    assert "sessions" in await lsp.call("aerix/session/list")


async def test_a_fault_of_ours_is_in_the_log_and_one_line_on_stderr(lsp: LspClient, tmp_path: Path) -> None:
    await lsp.error("aerix/pool/status")
    assert await lsp.stop() == 0
    stderr = (await lsp.stderr).decode()
    assert "Traceback" not in stderr
    assert stderr.count("\n") == 1
    assert "Traceback" in (tmp_path / "state" / "aerix" / "server.log").read_text()


@pytest.mark.parametrize(
    ("message", "code", "answered_as"),
    [
        (rid(70, method=5), -32600, 70),
        (rid(None), -32600, None),
        (rid(1.5), -32600, None),
        (rid([]), -32600, None),
        ({"id": 71, "method": "aerix/session/list"}, -32600, 71),
        ({"jsonrpc": "1.0", "id": "x", "method": "aerix/session/list"}, -32600, "x"),
        ([rid(72)], -32600, None),
        ("text", -32600, None),
        ({"jsonrpc": "2.0"}, -32600, None),
    ],
)
async def test_what_is_no_message_is_answered(lsp: LspClient, message: Any, code: int, answered_as: Any) -> None:
    lsp.send(message)
    await lsp.until(lambda: lsp.stray)
    assert [(m["id"], m["error"]["code"]) for m in lsp.stray] == [(answered_as, code)]
    assert "sessions" in await lsp.call("aerix/session/list")


@pytest.mark.parametrize(
    "body", [b'{"jsonrpc": nope', b"", b"\xff\xfe\x00", b'{"a":NaN}', b"[" * 100_000, b"9" * 10_000, b'"\xe9"']
)
async def test_what_is_no_json_is_answered_and_survived(lsp: LspClient, body: bytes) -> None:
    lsp.raw(body)
    await lsp.until(lambda: lsp.stray)
    assert lsp.stray[0]["id"] is None
    assert lsp.stray[0]["error"]["code"] == -32700
    assert "sessions" in await lsp.call("aerix/session/list")


async def test_headers_in_any_case_and_noise_before_them(lsp: LspClient) -> None:
    for number, header in enumerate(
        [
            b"content-length: %d\r\n\r\n",
            b"CONTENT-LENGTH:%d\r\nX-Other: 1\r\n\r\n",
            b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length:   %d  \r\n\r\n",
            b"noise\r\n\r\nContent-Length: -5\r\n\r\nContent-Length: %d\n\n",
        ]
    ):
        future = lsp.answers[f"h{number}"] = asyncio.get_running_loop().create_future()
        lsp.raw(json.dumps(rid(f"h{number}")).encode(), header)
        async with asyncio.timeout(10):
            assert "result" in await future


async def test_nested_jsonrpc_and_odd_keys_are_plain_params(lsp: LspClient, tmp_path: Path) -> None:
    odd = {"cwd": str(tmp_path), "a-b": {"jsonrpc": "2.0", "id": 1, "method": "x"}, "class": 1, "_x": 2}
    assert (await lsp.call("aerix/session/new", odd))["session"]["profile"] is None


async def test_cancels_late_foreign_and_unreadable_are_harmless(lsp: LspClient) -> None:
    await lsp.call("aerix/session/list")
    for params in ({"id": lsp.ids}, {"id": 987654}, {"id": "no such"}, {}, 7, None, {"id": []}):
        lsp.notify("$/cancelRequest", params)
    assert "sessions" in await lsp.call("aerix/session/list")
    assert lsp.stray == []


async def test_unknown_and_wrong_notifications_are_ignored(lsp: LspClient, tmp_path: Path) -> None:
    lsp.notify("aerix/nope", {})
    lsp.notify("textDocument/didOpen", {"nope": 1})
    version = {"uri": (tmp_path / "a").as_uri(), "version": 1}
    lsp.notify("textDocument/didChange", {"textDocument": version, "contentChanges": [{"text": "x"}]})
    lsp.notify("aerix/session/new", {"cwd": str(tmp_path)})
    lsp.send({"jsonrpc": "2.0", "id": 5000, "result": {}})
    lsp.send({"jsonrpc": "2.0", "id": 5001, "error": {"code": 1, "message": "m"}})
    assert (await lsp.call("aerix/session/list"))["sessions"] == []
    assert lsp.stray == []
    assert all(note["method"] != "window/showMessage" for note in lsp.notes)


async def test_a_waiting_request_can_be_cancelled_and_the_work_goes_on(lsp: LspClient, tmp_path: Path) -> None:
    session = (await lsp.call("aerix/session/new", {"cwd": str(tmp_path)}))["session"]["id"]
    request = (await lsp.call("aerix/request/start", {"session": session, "prompt": "hang"}))["request"]
    ref = {"session": session, "request": request}
    waiting = lsp.ask("aerix/request/wait", ref)
    lsp.notify("$/cancelRequest", {"id": lsp.ids})
    async with asyncio.timeout(5):
        assert (await waiting)["error"]["code"] == -32800
    assert (await lsp.call("aerix/request/cancel", ref))["cancelled"] is True
    assert (await lsp.call("aerix/request/wait", ref))["outcome"] == "cancelled"
    assert (await lsp.call("aerix/request/cancel", ref))["cancelled"] is False


async def test_an_id_in_use_is_refused(lsp: LspClient, tmp_path: Path) -> None:
    session = (await lsp.call("aerix/session/new", {"cwd": str(tmp_path)}))["session"]["id"]
    request = (await lsp.call("aerix/request/start", {"session": session, "prompt": "hang"}))["request"]
    params = {"session": session, "request": request}
    first = lsp.ask_raw(rid("w", method="aerix/request/wait", params=params))
    second = lsp.ask_raw(rid("w", method="aerix/request/wait", params=params))
    async with asyncio.timeout(5):
        assert (await second)["error"]["code"] == -32600
    assert not first.done()


async def test_errors_of_the_pool_carry_code_and_hint(lsp: LspClient, tmp_path: Path) -> None:
    session = (await lsp.call("aerix/session/new", {"cwd": str(tmp_path)}))["session"]["id"]
    request = (await lsp.call("aerix/request/start", {"session": session, "prompt": "no pool"}))["request"]
    error = await lsp.error("aerix/request/wait", {"session": session, "request": request})
    assert error == {
        "code": 4000,
        "message": "No pool answers.",
        "data": {"code": "pool_unavailable", "hint": "Start one."},
    }


async def test_nothing_that_prints_breaks_a_frame(lsp: LspClient, tmp_path: Path) -> None:
    session = (await lsp.call("aerix/session/new", {"cwd": str(tmp_path)}))["session"]["id"]
    request = (await lsp.call("aerix/request/start", {"session": session, "prompt": "child"}))["request"]
    outcome = await lsp.call("aerix/request/wait", {"session": session, "request": request})
    assert outcome["outcome"] == "final"
    assert await lsp.stop() == 0
    assert b"noise of our own" in await lsp.stderr


async def test_requests_after_shutdown_are_answered_and_exit_is_zero(lsp: LspClient) -> None:
    await lsp.call("shutdown")
    assert (await lsp.error("aerix/session/list"))["code"] == -32600
    lsp.notify("exit", None)
    assert await lsp.ended() == 0


@pytest.mark.parametrize(
    ("leave", "reason"),
    [
        (lambda lsp: lsp.process.stdin.close(), "the client went away"),
        (lambda lsp: lsp.process.send_signal(signal.SIGTERM), "ended by SIGTERM"),
        (lambda lsp: lsp.process.send_signal(signal.SIGINT), "ended by SIGINT"),
        (lambda lsp: lsp.notify("exit", None), "exit without shutdown"),
    ],
)
async def test_a_client_that_vanishes_ends_its_sessions(
    lsp: LspClient, tmp_path: Path, leave: Any, reason: str
) -> None:
    session = (await lsp.call("aerix/session/new", {"cwd": str(tmp_path)}))["session"]["id"]
    await lsp.call("aerix/request/start", {"session": session, "prompt": "hang"})
    leave(lsp)
    assert await lsp.ended() == 1
    assert (tmp_path / "ended").read_text() == reason
    assert lsp.events(session)[-2]["type"] == "session.end"
    assert b"Traceback" not in await lsp.stderr


async def test_unsaved_text_is_seen_by_path(lsp: LspClient, tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("on disk\n")
    link = tmp_path / "a link.txt"
    link.symlink_to("real.txt")
    uri = link.as_uri()

    async def overlay(path: Path) -> str | None:
        result = await lsp.call("aerix/diff/get", {"session": "s", "request": str(path)})
        return result["unified"] if result.get("notice") else None

    document = {"uri": uri, "languageId": "text", "version": 1, "text": "on disk\n"}
    lsp.notify("textDocument/didOpen", {"textDocument": document})
    assert await overlay(link) is None
    changes = [{"text": "line\x0cone\u2028é\nunsaved\n"}]
    lsp.notify("textDocument/didChange", {"textDocument": {"uri": uri, "version": 2}, "contentChanges": changes})
    assert await overlay(link) == "line\x0cone\u2028é\nunsaved\n"
    lsp.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
    assert await overlay(link) is None
    lsp.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    restored = {"uri": uri, "languageId": "text", "version": 1, "text": "restored by the editor\n"}
    lsp.notify("textDocument/didOpen", {"textDocument": restored})
    async with asyncio.timeout(10):
        while await overlay(tmp_path / "real.txt") != "restored by the editor\n":
            pass
    lsp.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    assert await overlay(link) is None
