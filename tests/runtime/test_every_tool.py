"""Every tool once in a repository, with the exact texts in the log."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

from aerix_server.protocol.events import AgentEnd
from aerix_server.tools.registry import registry
from tests.runtime.loop_kit import Kit, call, final, turn

CALLS = [
    call("write", path="src/app.py", content="def add(a, b):\n    return a - b\n"),
    call("read", path="src/app.py"),
    call("edit", path="src/app.py", old="a - b", new="a + b"),
    call("edit", path="src/app.py", old="nowhere", new="x"),
    call("bash", command="echo out; echo err >&2; exit 3"),
    call("bash", command="kill -9 $$"),
    call("bash", command="sleep 30", timeout_secs=1),
    call("bash", command="echo later", background=True),
    call("glob", pattern="**/*.py"),
    call("grep", pattern="return"),
    call("repo_map"),
    call("plan", op="write", text="1. add"),
    call("context", op="status"),
    call("skill", list=True),
    call("web_fetch", url="https://x.invalid"),
    call("web_search", query="x"),
]


async def test_every_tool_with_its_texts(kit: Callable[..., Kit]) -> None:
    turns = [turn(*CALLS[start : start + 8]) for start in range(0, len(CALLS), 8)]
    run = kit(*turns, final("done"), final("done"))
    subprocess.run(["git", "init", "-q", str(run.cwd)], check=True)
    result = await run.run()
    assert (result.outcome, result.text) == ("final", "done")
    assert {made["tool"] for made in CALLS} == set(registry()) - {"agent"}, "test_pieces.py has the agent tool"
    held = [item for item in run.rebuilt().values() if item.role == "user"]
    heads = [item.text.split("\n")[0] for item in held]
    wanted = [f"[{made['tool']} c{number}]" for number, made in enumerate(CALLS, 1)]
    assert [head for head in heads if head in wanted] == wanted
    texts: dict[str, Any] = {
        message.result.call: message.result.text for message in run.messages("tool") if message.result
    }
    assert texts["c2"].splitlines()[0].endswith("def add(a, b):")
    assert texts["c4"].startswith("error: ")
    assert texts["c5"] == "out\nerr\n[exit 3]"
    assert texts["c6"].endswith("[signal 9]") and texts["c7"].endswith("[timeout after 1s]")
    assert "j1" in texts["c8"] and any(head == "[job j1 exited 0]" for head in heads)
    assert "src/app.py" in texts["c9"] and "src/app.py:2:" in texts["c10"] and "app.py" in texts["c11"]
    assert "s1  system" in texts["c13"]
    assert texts["c15"].startswith("refused: ") and texts["c16"].startswith("refused: ")
    (end,) = run.of(AgentEnd)
    assert [check.exit for check in end.checks_run] == [3] and len(end.files_touched) == 1
    assert (run.cwd / "src" / "app.py").read_text() == "def add(a, b):\n    return a + b\n"
