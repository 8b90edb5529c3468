"""Events → lines, texts → what a terminal may see: tables."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aerix_cli.diff_text import diff_text
from aerix_cli.pool import status_lines
from aerix_cli.progress import Progress, worth_saying
from aerix_cli.render import event_lines, waiting_line
from aerix_cli.result import Finished, answer_text, ended, json_line, result_object
from aerix_cli.terminal import wants_color
from aerix_cli.texts import cut_to_width, json_safe, one_line, visible, width
from hypothesis import given
from hypothesis import strategies as st

from aerix_server.protocol.messages import DiffResult, Outcome, PoolStatusResult


def call(**given: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "calls": [{"id": "c1", "tool": "read", "input": given}]}


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (call(path="src/app.py", offset=1), ["[read c1] src/app.py"]),
        (call(), ["[read c1]"]),
        (call(path=7), ["[read c1]"]),
        (call(command="a\nb\x1b[31m\r"), ["[read c1] a\\nb\\e[31m\\r"]),
        (call(path="x" * 500), ["[read c1] " + "x" * 159 + "…"]),
        ({"type": "message", "role": "assistant", "error": "no JSON"}, ["asked again: no JSON"]),
        (
            {"type": "message", "role": "tool", "result": {"call": "c1", "tool": "read", "text": "error: no\nx", "error": True}},  # noqa: E501
            ["[read c1] error: no"],
        ),
        ({"type": "message", "role": "tool", "result": {"call": "c1", "tool": "read", "text": "", "error": False}}, []),
        ({"type": "route", "choice": "edit", "scores": [{"option": "edit", "probability": 0.914}]}, ["route: edit (91%)"]),  # noqa: E501
        ({"type": "route", "choice": "edit", "scores": [], "forced": True}, []),
        ({"type": "plan", "op": "write", "text": "1. a\n\n2. b\x07"}, ["plan:", "  1. a", "  2. b\\a"]),
        ({"type": "plan", "op": "read", "text": "1."}, []),
        ({"type": "compaction", "before": 9, "after": 4}, ["context compacted: 9 to 4 tokens"]),
        ({"type": "job", "job": "j1", "event": "exit", "code": 0}, ["[job j1] exited 0"]),
        ({"type": "job", "job": "j1", "event": "killed"}, ["[job j1] killed"]),
        ({"type": "notice", "level": "warning", "text": "a\nb"}, ["warning: a\\nb"]),
        ({"type": "notice", "level": "info", "text": "a"}, ["a"]),
        (
            {"type": "request.end", "outcome": "final", "ms": 1234, "usage": {"completion_tokens": 5},
             "diff": {"added": 2, "removed": 1, "files": 1}},
            ["final · 1.2 s · 5 tokens · +2 -1 in 1 file"],
        ),
        ({**call(path="a"), "agent": "a1"}, ["[read c1] a"]),
        ({**call(path="a"), "agent": "a1.c3"}, ["a1.c3 [read c1] a"]),
        (
            {"type": "message", "role": "tool", "agent": "a1.c3.v1",
             "result": {"call": "c1", "tool": "read", "text": "error: no", "error": True}},
            ["a1.c3.v1 [read c1] error: no"],
        ),
        ({"type": "agent.spawn", "agent": "a1", "kind": "root"}, []),
        (
            {"type": "agent.spawn", "agent": "a1.c3", "kind": "implementer", "brief": "Write a."},
            ["implementer a1.c3 started: Write a."],
        ),
        ({"type": "agent.end", "agent": "a1", "outcome": "final"}, []),
        (
            {"type": "agent.end", "agent": "a1.c3", "outcome": "budget", "reason": "all 40 turns"},
            ["a1.c3 ended: budget: all 40 turns"],
        ),
        (
            {"type": "verify", "agent": "a1.c3.v1", "piece": "a1.c3", "verdict": "fail", "reason": "no"},
            ["verified a1.c3: fail: no"],
        ),
        ({"type": "segment", "text": "x"}, []),
        ({"type": "a kind of a later version"}, []),
    ],
)  # fmt: skip
def test_event_lines(event: dict[str, Any], lines: list[str]) -> None:
    assert event_lines(event) == lines


@pytest.mark.parametrize(
    ("phase", "done", "total", "detail", "line"),
    [
        ("prefill", 512, 2048, None, "reading the prompt: 512 of 2048 rows"),
        ("queue", 2, 0, None, "waiting in the queue, place 2"),
        ("queue", 0, 0, None, "waiting for the model"),
        ("download", 5_000_000, 9_000_000, "m", "downloading the model: 5 of 9 MB (m)"),
        ("load", 1, 3, None, "loading the model: 1 of 3"),
        ("later\x1b", 0, 0, None, "later\\e"),
    ],
)
def test_waiting_lines(phase: str, done: int, total: int, detail: str | None, line: str) -> None:
    event = {"type": "progress", "phase": phase, "done": done, "total": total, "detail": detail}
    assert waiting_line(event) == line
    assert event_lines(event) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b]0;t\x07", "\\e]0;t\\a"),
        ("\x9b31m", "\\x9b31m"),
        ("a\r\nb\rc", "a\r\nb\\rc"),
        ("\u202egnp", "\\u202egnp"),
        ("\ud800", "\\ud800"),
        ("é日本🙂", "é日本🙂"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(alphabet=st.characters(exclude_categories=[])))
def test_no_text_steers_a_terminal(text: str) -> None:
    for shown in (visible(text), one_line(text), json_line({"a": text})):
        assert not any(character in "\x1b\x07\x08\x7f" or "\x80" <= character <= "\x9f" for character in shown), shown
        shown.encode("utf-8")
    assert "\n" not in one_line(text)
    assert json.loads(json_line({"a": text})) == {"a": text}


@given(st.text(), st.integers(0, 20))
def test_cut_fits(text: str, columns: int) -> None:
    cut = cut_to_width(text, columns)
    assert width(cut) <= columns or text == cut == ""


def test_wide_characters_take_two_columns() -> None:
    assert cut_to_width("日本語", 5) == "日本…"
    assert width("e\u0301日") == 3
    assert json_safe('"\x9b"') == '"\\u009b"'


DIFF = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\x1b\n c\n"


def test_diff_text() -> None:
    assert diff_text("", [], color=False) == ""
    assert diff_text("", ["n\nl"], color=True) == "untracked: n\\nl\n"
    plain = diff_text(DIFF, ["new"], color=False)
    assert plain == DIFF.replace("\x1b", "\\e") + "untracked: new\n"
    colored = diff_text(DIFF, [], color=True)
    assert "\x1b[32m+b\\e\x1b[0m\n" in colored
    assert "\x1b[31m-a\x1b[0m\n c\n" not in colored
    assert " c\n" in colored


@pytest.mark.parametrize(
    ("mode", "env", "wanted"),
    [
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"TERM": "xterm"}, False),
        ("auto", {"TERM": "xterm", "FORCE_COLOR": "1"}, False),
    ],
)
def test_color_without_a_terminal(mode: str, env: dict[str, str], wanted: bool) -> None:
    import os

    fd = os.open(os.devnull, os.O_WRONLY)
    try:
        assert wants_color(mode, fd, env) is wanted
    finally:
        os.close(fd)


def outcome(**more: Any) -> Outcome:
    return ended("final", "r", 5).model_copy(update={"reason": None} | more)


def test_result_object() -> None:
    diff = DiffResult(files=[], untracked=["n"], unified="d")
    value = result_object(Finished(outcome(text="t"), "s", "r1", 3, diff), with_output=False)
    assert list(value) == [
        "type", "outcome", "text", "session", "request", "usage", "duration_ms", "num_turns", "files_touched", "diff",
        "untracked",
    ]  # fmt: skip
    assert value["num_turns"] == 3
    assert value["untracked"] == ["n"]
    assert result_object(Finished(outcome()), with_output=True)["output"] is None
    assert result_object(Finished(outcome(output={"a": 1})), with_output=False)["output"] == {"a": 1}
    failed = result_object(Finished(ended("failed", "why", 1)), with_output=True)
    assert failed["reason"] == "why"
    assert "output" not in failed
    assert answer_text(outcome(output={"a": "é"})) == '{"a": "é"}'


@pytest.mark.parametrize(
    ("kind", "no_pool", "code"),
    [
        ("final", False, 0),
        ("failed", False, 1),
        ("killed", False, 1),
        ("budget", False, 2),
        ("refused", False, 3),
        ("failed", True, 4),
        ("cancelled", False, 130),
    ],
)
def test_exit_codes(kind: Any, no_pool: bool, code: int) -> None:
    assert Finished(ended(kind, "", 0), no_pool=no_pool).exit_code == code


def test_progress_without_a_terminal_says_a_phase_once() -> None:
    said: list[str] = []
    progress = Progress(said.append, quiet=False, screen=False, color=False)
    for done in range(100):
        progress.show({"type": "progress", "phase": "prefill", "done": done, "total": 100})
    progress.show(call(path="a"))
    assert said == ["reading the prompt: 0 of 100 rows\n", "[read c1] a\n"]


def test_progress_on_a_terminal_is_one_line_that_goes() -> None:
    said: list[str] = []
    progress = Progress(said.append, quiet=False, screen=True, color=False)
    progress.show({"type": "progress", "phase": "prefill", "done": 1, "total": 100})
    progress.show({"type": "progress", "phase": "prefill", "done": 2, "total": 100})
    progress.show(call(path="a"))
    assert "".join(said).count("\n") == 1
    assert said[-2:] == ["\r\x1b[2K", "[read c1] a\n"]


def test_quiet_leaves_warnings() -> None:
    said: list[str] = []
    progress = Progress(said.append, quiet=True, screen=True, color=True)
    for event in (
        call(path="a"),
        {"type": "progress", "phase": "prefill", "done": 1, "total": 1},
        {"type": "notice", "level": "info", "text": "i"},
        {"type": "notice", "level": "warning", "text": "w"},
    ):
        progress.show(event)
    assert said == ["warning: w\n"]


@pytest.mark.parametrize(
    ("said", "phase", "now", "worth"),
    [
        (None, "load", 0.0, True),
        (("load", 0.0), "load", 4.9, False),
        (("load", 0.0), "load", 5.0, True),
        (("load", 0.0), "queue", 0.1, True),
    ],
)
def test_worth_saying(said: tuple[str, float] | None, phase: str, now: float, worth: bool) -> None:
    assert worth_saying(said, phase, now) is worth


def test_pool_status_lines() -> None:
    none = PoolStatusResult(socket="/s", running=False)
    assert status_lines(none) == ["no pool answers on /s; the next request starts one"]
    member = {
        "member": "main",
        "model": "m\x1b",
        "status": "ready",
        "lane": "cpu",
        "window": 8192,
        "queue": {"running": 1},
    }
    status = {
        "pool": {"version": "1", "pid": 5},
        "memory": {"used_bytes": 1_500_000_000, "limit_bytes": 8_000_000_000},
        "connections": 1,
        "contexts": 2,
        "members": [member],
    }
    assert status_lines(PoolStatusResult(socket="/s", running=True, status=status)) == [
        "pool 1 (pid 5) on /s",
        "memory 1.5 GB of 8.0 GB · 1 connection · 2 contexts",
        "main: m\\e · ready · cpu · window 8192 · 1 running, 0 waiting",
    ]
