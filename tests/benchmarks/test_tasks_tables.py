"""The trial's pure parts: a session's log, aider's files, the records, the tables, the words of the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tasks import aider_log, record, session_log, table
from benchmarks.tasks.aider import _files as aider_files
from benchmarks.tasks.arguments import parse
from benchmarks.tasks.errors import TrialFailed
from benchmarks.tasks.record import Figures, Run, Sitting
from benchmarks.tasks.task import tasks


def run(
    label: str,
    task: str,
    seed: int,
    solved: bool,
    *,
    why: str = "",
    turns: int = 1,
    seconds: float = 1.0,
    outcome: str = "final",
) -> Run:
    return Run(
        label=label,
        task=task,
        seed=seed,
        solved=solved,
        why=why,
        outcome=outcome,
        reason="",
        figures=Figures(turns=turns, read=500, written=50),
        seconds=seconds,
        files=(),
        answer="",
        trace=("route: edit",),
    )


def message(role: str, turn: int, agent: str = "a1", **more: Any) -> dict[str, Any]:
    return {"type": "message", "agent": agent, "role": role, "turn": turn, **more}


def usage(prompt: int, resumed: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "recomputed_from": resumed, "completion_tokens": completion}


def result(call: str, text: str, error: bool) -> dict[str, Any]:
    return {"call": call, "tool": "edit", "text": text, "error": error, "ms": 1}


LOG = [
    {"type": "route", "choice": "edit"},
    {"type": "agent.spawn", "agent": "a1", "kind": "root"},
    message("assistant", 1, raw="{", error="it was cut", usage=usage(100, 0, 50)),
    message("user", 1, text="[turn cut]\nshorter"),
    message(
        "assistant",
        1,
        thought="first\n\nlook",
        calls=[{"id": "c1", "tool": "edit", "input": {"path": "a.py"}}],
        usage=usage(160, 90, 20),
    ),
    message("tool", 1, result=result("c1", "error: old is missing", True)),
    {"type": "agent.spawn", "agent": "a1.c2", "kind": "implementer", "brief": "Do it."},
    {"type": "agent.spawn", "agent": "a1.c2.v1", "kind": "verifier", "brief": "Check it."},
    message("assistant", 1, "a1.c2", thought="t", final="ok", usage=usage(10, 0, 5)),
    {"type": "verify", "agent": "a1.c2.v1", "piece": "a1.c2", "attempt": 1, "verdict": "fail", "reason": "no"},
    message("tool", 1, result=result("c2", "fine", False)),
    {"type": "compaction", "agent": "a1", "before": 900, "after": 400},
    {"type": "compaction", "agent": "a1", "before": 900, "after": 900, "blocked": True},
    {"type": "some.later.kind", "agent": "a1"},
    {"type": "agent.end", "agent": "a1", "outcome": "budget", "reason": "20 turns"},
]
END = {"type": "request.end", "outcome": "budget", "usage": usage(300, 100, 80)}


def test_the_figures_of_a_log() -> None:
    found = session_log.figures([*LOG, END])
    assert found == Figures(
        turns=2,
        calls=2,
        errors=1,
        reasks=1,
        read=300,
        resumed=100,
        written=80,
        compactions=1,
        pieces=1,
        verdicts=("fail",),
    )


def test_a_log_without_its_end_is_summed() -> None:
    found = session_log.figures(LOG)
    assert (found.read, found.resumed, found.written) == (270, 90, 75)
    assert session_log.figures([]) == Figures(calls=0, resumed=0, compactions=0, pieces=0)


def test_the_trace_of_a_log() -> None:
    assert list(session_log.trace([*LOG, END])) == [
        "route: edit",
        "a1 turn 1, asked again: it was cut – it had said: {",
        "a1 turn 1, note: [turn cut] ⏎ shorter",
        'a1 turn 1: first ⏎ look → edit c1 {"path": "a.py"}',
        "a1 turn 1, edit c1 error: error: old is missing",
        "a1.c2 starts as implementer: Do it.",
        "a1.c2.v1 starts as verifier: Check it.",
        "a1.c2 turn 1: t → final: ok",
        "a1.c2.v1 verdict on a1.c2: fail: no",
        "a1 turn 1, edit c2 result: fine",
        "a1 compacted: 900 to 400 tokens",
        "a1 compacted: 900 to 900 tokens",
        "a1 ends: budget: 20 turns",
        "request ends: budget",
    ]


def test_a_long_text_is_cut_in_the_trace() -> None:
    assert session_log.short("a" * 200, 10) == "aaaaaaaaa…"
    assert session_log.both_ends("a" * 100 + "b" * 100, 11) == "aaaa … bbbb"
    assert session_log.both_ends({"a": "b"}, 11) == '{"a": "b"}'


def test_a_log_cut_by_a_kill_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "aerix" / "sessions" / "key"
    folder.mkdir(parents=True)
    (folder / "1.jsonl").write_text('{"type": "route", "choice": "plan"}\n[1]\n\n{"type": "mess')
    assert session_log.read_log(tmp_path) == [{"type": "route", "choice": "plan"}]


HISTORY = """
TO LLM 2024-01-01T00:00:00
-------
USER Fix it.
LLM RESPONSE 2024-01-01T00:00:05
ASSISTANT a.py
ASSISTANT ```
ASSISTANT x = 1
TO LLM 2024-01-01T00:00:06
-------
ASSISTANT a.py
USER no
LLM RESPONSE 2024-01-01T00:00:09
ASSISTANT The answer
ASSISTANT
ASSISTANT is 4.
"""
EVENTS = "\n".join(
    json.dumps({"event": event, "properties": properties})
    for event, properties in [
        ("launched", {}),
        ("message_send_starting", {}),
        ("message_send", {"prompt_tokens": 700, "completion_tokens": 60}),
        ("message_send", {"prompt_tokens": 900, "completion_tokens": 40}),
    ]
)


def test_aiders_own_files_are_read() -> None:
    assert aider_log.answers(HISTORY)[0].startswith("a.py\n```\nx = 1")
    assert aider_log.answer(HISTORY) == "The answer\n\nis 4."
    assert aider_log.answer("") == ""
    said = "Aider v0.86\nThe LLM did not conform to the edit format.\nApplied edit to a.py\n"
    found = aider_log.figures(EVENTS + "\n{", said)
    assert found == Figures(turns=2, errors=1, reasks=1, read=1600, written=100)
    assert list(aider_log.trace(HISTORY, said))[-1] == "aider: Applied edit to a.py"
    assert aider_log.figures("", "") == Figures()


def test_aider_is_told_of_crlf() -> None:
    assert aider_files(tasks(["crlf-off-by-one"])[0])[:2] == ["--line-endings", "crlf"]
    assert aider_files(tasks(["handle-error"])[0]) == ["--line-endings", "lf", "--file=rates.py"]


SITTING = Sitting(label="ours", agent="aerix", facts={"model": "m.gguf"})


def test_records_are_read_back(tmp_path: Path) -> None:
    values = [SITTING, run("ours", "a", 1, True), run("ours", "b", 1, False, why="no\nline")]
    path = tmp_path / "deep" / "runs.jsonl"
    for value in values:
        record.append(path, value)
    assert path.read_bytes().count(b"\n") == 3
    assert record.read(path) == values
    assert record.runs(record.read(path)) == values[1:]


@pytest.mark.parametrize("line", ["{", "[]", '{"type": "run"}', '{"type": "sitting", "label": 1}', '{"type": "x"}'])
def test_what_is_no_record_is_named_by_its_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(record.line(SITTING) + line + "\n")
    with pytest.raises(TrialFailed, match=r"runs\.jsonl:2 is no line of a trial"):
        record.read(path)
    with pytest.raises(TrialFailed, match="cannot be read"):
        record.read(tmp_path / "none.jsonl")


RUNS: list[Run] = [
    run("ours", "a", 1, True, turns=2, seconds=10.0),
    run("ours", "b", 1, False, why="nothing was changed", turns=20, outcome="budget"),
    run("ours", "a", 2, True, turns=4, seconds=20.5),
    run("ours", "b", 2, False, why="nothing was changed", turns=20, outcome="budget"),
    run("ours", "a", 3, True, turns=3, seconds=12.0),
    run("ours", "b", 3, True, turns=3),
    run("theirs", "a", 1, False, why="a | b"),
]


def test_a_row_for_each_task() -> None:
    assert table.by_task(RUNS[:6]) == [
        "| task | solved | turns | tool errors | re-asks | tokens read | written | time, s | why not |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| a | 3/3 | 3 (2–4) | 0 | 0 | 500 | 50 | 12 (10–20.5) |  |",
        "| b | 1/3 | 20 (3–20) | 0 | 0 | 500 | 50 | 1 | 2 × nothing was changed [budget] |",
        "| **all** | 1 (1–2) of 2 | 3.5 (2–20) | 0 | 0 | 500 | 50 | 5.5 (1–20.5) |  |",
    ]
    assert len(table.by_task([])) == 2
    assert table.by_task(RUNS[6:])[2].endswith("| a \\| b |")


def test_labels_side_by_side() -> None:
    assert table.compared(RUNS) == [
        "| task | ours | theirs |",
        "| --- | --- | --- |",
        "| a | 3/3 | 0/1 |",
        "| b | 1/3 | – |",
        "| **all** | 4/6 | 0/1 |",
        "| solved in a seed | 1 (1–2) of 2 | 0 of 1 |",
        "| turns, of a run | 3.5 (2–20) | 1 |",
        "| tool errors, of a run | 0 | 0 |",
        "| re-asks, of a run | 0 | 0 |",
        "| tokens read, of a run | 500 | 500 |",
        "| written, of a run | 50 | 50 |",
        "| time, s, of a run | 5.5 (1–20.5) | 1 |",
    ]
    assert table.conditions([SITTING]) == ["- ours: aerix; model m.gguf"]


def test_seeds_that_tried_different_numbers_of_tasks() -> None:
    assert table.by_task(RUNS[:3])[-1].startswith("| **all** | 1 of 1–2 |")


def test_a_run_in_a_line() -> None:
    assert table.told(RUNS[0]) == "ours: a, seed 1: solved (2 turns, 0 tool errors, 0 re-asks, 10 s)"
    assert table.told(RUNS[1]).startswith("ours: b, seed 1: not solved: nothing was changed [budget] (20 turns")
    assert table.traced(RUNS[0])[1:] == ["    route: edit"]


def test_the_words_of_the_command_line(tmp_path: Path) -> None:
    given = parse(["--model", "m", "--tasks", "a, b", "--seeds", "4,5", "--set", "routing.enabled=false"])
    assert (given.model, given.tasks, given.seeds) == ("m", ("a", "b"), (4, 5))
    assert given.settings == {"routing.enabled": "false"} and given.label == "aerix; routing.enabled=false"
    assert (given.max_turns, given.max_new_tokens, given.limit_s, given.temperature) == (20, 1024, 300, 0.2)
    assert parse(["--model", "m", "--agent", "aider"]).label == "aider"
    files = ["--compare", str(tmp_path / "a"), str(tmp_path / "b")]
    assert parse(files).compare == (tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give --model REF"),
        (["--model", "m", "--set", "no.such=1"], "no KEY=VALUE of a setting"),
        (["--model", "m", "--set", "routing.enabled"], "no KEY=VALUE of a setting"),
        (["--model", "m", "--agent", "aider", "--set", "routing.enabled=false"], "--set is for settings of aerix"),
        (["--model", "m", "--limit", "0"], "0 is less than 1"),
        (["--model", "m", "--temperature", "3"], "not between 0 and 2"),
        (["--model", "m", "--seeds", "one"], "invalid"),
    ],
)
def test_wrong_words_are_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(words)
    assert says in capsys.readouterr().err
