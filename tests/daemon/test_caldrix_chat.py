"""`caldrix run` as a chat, on a pseudo-terminal, over the fake engine; and the pure parts of what it shows."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.utils import get_cwidth

from caldrix.commands.bars import Pace, amount, clock
from caldrix.commands.input_line import open_history
from caldrix.commands.stats import stats_line
from caldrix.commands.transcript import markdown, save
from caldrix.commands.word_wrap import WordWrap
from caldrix.protocol.messages import Done, Progress, Segment, Timing, Usage
from tests.daemon.terminal import Terminal, on_terminal

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@contextlib.contextmanager
def chat(folder: Path, *words: str, columns: int = 80, **env: str) -> Iterator[Terminal]:
    surroundings = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    surroundings |= {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state"), "TERM": "xterm", **env}
    command = [str(HERE / "fake_pool.py"), "run", "fake", *words]
    with on_terminal(command, surroundings, folder, columns) as terminal:
        terminal.until("leaves.")
        yield terminal


def enter(terminal: Terminal, keys: str) -> None:
    """Press keys at the next edited prompt: once it takes pasted text, the terminal passes each key on."""
    terminal.until("\x1b[?2004h")
    terminal.press(keys)


def test_questions_commands_and_leaving(folder: Path) -> None:
    with chat(folder) as terminal:
        enter(terminal, "say hallo there\r")
        terminal.until("hallo there\r\n")
        enter(terminal, "/stats\r")
        terminal.until("answer 11 tokens")
        enter(terminal, "/nonsense\r")
        terminal.until("no command /nonsense")
        enter(terminal, "/system say arr\r")
        terminal.until("system: say arr")
        enter(terminal, "say once more\r")
        terminal.until("once more\r\n")
        terminal.until("first token after")
        enter(terminal, "/save chat.md\r")
        terminal.until("saved to")
        enter(terminal, "/save chat.md\r")
        terminal.until("there already")
        enter(terminal, "/clear\r")
        terminal.until("forgotten")
        enter(terminal, "/exit\r")
        assert terminal.ended() == 0
    said = (folder / "chat.md").read_text()
    for part in ("## system\n\nsay arr\n", "## user\n\nsay hallo there\n", "## assistant\n\nonce more\n"):
        assert part in said
    history = folder / "state" / "caldrix" / "run-history"
    assert "+say hallo there" in history.read_text() and stat.S_IMODE(history.stat().st_mode) == 0o600


def test_ctrl_c_stops_an_answer_and_the_chat_goes_on(folder: Path) -> None:
    with chat(folder, "--max-new-tokens", "4000") as terminal:
        enter(terminal, "long\r")
        terminal.until("xxxxxxxxxx")
        terminal.press("\x03")
        terminal.until("stopped.")
        enter(terminal, "say still here\r")
        terminal.until("still here\r\n")
        enter(terminal, "\x04")
        assert terminal.ended() == 0


def test_ctrl_c_twice_leaves(folder: Path) -> None:
    with chat(folder) as terminal:
        enter(terminal, "half a line\x03\x03")  # the first one empties the line
        terminal.until("Ctrl-C again")
        enter(terminal, "\x03")
        assert terminal.ended() == 130
    assert b"Traceback" not in terminal.shown


def test_pasted_lines_are_one_prompt(folder: Path) -> None:
    with chat(folder) as terminal:
        enter(terminal, "\x1b[200~say one\ntwo\x1b[201~")
        terminal.until("two")
        terminal.press("\r")
        terminal.until("one\r\ntwo\r\n")
        enter(terminal, "\x04")
        assert terminal.ended() == 0


def test_a_refused_question_leaves_the_chat_as_it_was(folder: Path) -> None:
    with chat(folder) as terminal:
        enter(terminal, "fail\r")
        terminal.until("the engine broke")
        enter(terminal, "/save chat.md\r")
        terminal.until("saved to")
        enter(terminal, "\x04")
        assert terminal.ended() == 0
    assert (folder / "chat.md").read_text() == "# Chat with fake\n"


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_escape_byte_where_none_is_wanted(folder: Path, env: dict[str, str]) -> None:
    with chat(folder, "--stats", **env) as terminal:
        terminal.until("> ")
        terminal.press("say plain\n")
        terminal.until("plain\r\n")
        terminal.until("plain\r\n")
        terminal.until("answer 5 tokens")
        terminal.press("/help\n")
        terminal.until("/exit")
        terminal.until("> ")
        terminal.press("\x04")
        assert terminal.ended() == 0
    assert b"\x1b" not in terminal.shown


def test_plain_ctrl_c_stops_an_answer_too(folder: Path) -> None:
    with chat(folder, "--max-new-tokens", "4000", NO_COLOR="1") as terminal:
        terminal.press("long\n")
        terminal.until("xxxxxxxxxx")
        terminal.press("\x03")
        terminal.until("stopped.")
        terminal.until("> ")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 130


def test_words_are_not_broken_on_a_narrow_terminal(folder: Path) -> None:
    with chat(folder, columns=20) as terminal:
        enter(terminal, "say twelve and thirteen or fourteen\r")
        terminal.until("twelve and thirteen\r\nor fourteen\r\n")
        enter(terminal, "\x04")
        assert terminal.ended() == 0


# --- pure parts ------------------------------------------------------------------------------------------------------


def usage(**changes: int) -> Usage:
    counts = {
        "prompt_tokens": 10,
        "recomputed_from": 4,
        "completion_tokens": 3,
        "forced_tokens": 1,
        "drafted_tokens": 0,
        "accepted_tokens": 0,
    }
    return Usage(**(counts | changes))


@pytest.mark.parametrize(
    ("used", "first_ms", "line"),
    [
        (
            usage(),
            None,
            "answer 3 tokens, 1 forced, in 2 ms (1500.0 tok/s); prompt 10 tokens, resumed at row 4, "
            "6 computed in 0 ms; stop",
        ),
        (
            usage(recomputed_from=0, drafted_tokens=8, accepted_tokens=5),
            12,
            "answer 3 tokens, 1 forced, 8 drafted, 5 accepted, in 2 ms (1500.0 tok/s); first token after 12 ms; "
            "prompt 10 tokens, read from its start, 10 computed in 0 ms; stop",
        ),
    ],
)
def test_stats(used: Usage, first_ms: int | None, line: str) -> None:
    timing = Timing(queued_ms=0, prefill_ms=0, decode_ms=2)
    assert stats_line(Done(id=1, finish="stop", text="x", usage=used, timing=timing), first_ms) == line


MIB = 1 << 20


@pytest.mark.parametrize(
    ("phase", "done", "total", "rate", "wide", "narrow"),
    [
        ("download", 10 * MIB, 40 * MIB, 2.0 * MIB, "10.0 MiB of 40.0 MiB, 2.0 MiB/s, 0:15 left", "25 %, 0:15 left"),
        ("download", 0, 40 * MIB, None, "40.0 MiB", "40.0 MiB"),
        ("prefill", 512, 4000, 100.0, "512 of 4000 rows, 100 rows/s, 0:35 left", "512/4000, 0:35 left"),
        ("prefill", 4000, 4000, 100.0, "4000 of 4000 rows, 100 rows/s", "4000/4000"),
        ("precheck", 0, 1, None, "", ""),
        ("load", 0, 0, None, "", ""),
    ],
)
def test_how_far_it_is(phase: str, done: int, total: int, rate: float | None, wide: str, narrow: str) -> None:
    frame = Progress(id=1, phase=phase, done=done, total=total)  # type: ignore[arg-type]
    assert amount(frame, rate, narrow=False) == wide and amount(frame, rate, narrow=True) == narrow


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0:00"), (75, "1:15"), (59.6, "1:00"), (3725, "1:02:05")])
def test_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


def test_pace() -> None:
    pace = Pace(100, 10.0)
    assert pace.rate(100, 11.0) is None and pace.rate(300, 12.0) == 100.0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one two three four\n", "one two \nthree four\n"),
        ("```\nx = 1 + 2 + 3\n```\none two three", "```\nx = 1 + 2 + 3\n```\none two \nthree"),
        ("    x = 1 + 2 + 3\n| a | b | c |", "    x = 1 + 2 + 3\n| a | b | c |"),
        ("averyveryverylongword", "averyveryverylongword"),
        ("日本語の文章は長い", "日本語の文\n章は長い"),
    ],
)
def test_wrapping_words(text: str, shown: str) -> None:
    wrap = WordWrap(11)
    assert wrap.feed(text) + wrap.end() == shown


@given(st.lists(st.text(st.sampled_from("ab` \n|\t日"), max_size=6), max_size=30), st.integers(8, 30))
def test_wrapping_loses_nothing_and_no_cut_matters(pieces: list[str], width: int) -> None:
    wrap, whole = WordWrap(width), WordWrap(width)
    text = "".join(pieces)
    shown = "".join(wrap.feed(piece) for piece in pieces) + wrap.end()
    assert shown == whole.feed(text) + whole.end()
    assert "".join(shown.split()) == "".join(text.split())
    if not {"`", "|", "\t"} & set(text) and "    " not in text:
        assert all(
            get_cwidth(line) <= width for line in shown.split("\n") if max(map(len, line.split()), default=0) < 8
        )


def test_a_history_without_a_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert isinstance(open_history(tmp_path / "file" / "history"), InMemoryHistory)
    kept = open_history(tmp_path / "new" / "history")
    (tmp_path / "new" / "history").unlink()
    (tmp_path / "new" / "history").mkdir()
    kept.store_string("nothing happens")
    assert list(kept.load_history_strings()) == []


def test_a_transcript(tmp_path: Path) -> None:
    turns = [Segment(id="u", role="user", text="hi\n"), Segment(id="a", role="assistant", text="ho")]
    text = markdown("m", None, turns)
    assert text == "# Chat with m\n\n## user\n\nhi\n\n## assistant\n\nho\n"
    save(tmp_path / "a.md", "m", None, turns)
    assert (tmp_path / "a.md").read_text() == text
    with pytest.raises(FileExistsError):
        save(tmp_path / "a.md", "m", None, [])
