"""The log: what is written loads again, whatever happened to the file or the disk in between (L01, L02, L05)."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerix_server.protocol.outcomes import AerixError
from aerix_server.session.lock import holder
from aerix_server.session.log import LogFailed, LogWriter, encode_line
from aerix_server.session.log_reader import CUT, parse_log, read_log

NOTE = {"type": "message", "agent": "a1", "turn": 1, "role": "user"}


def texts(path: Path) -> list[str]:
    return [event["text"] for event in read_log(path).events]


def write(path: Path, *some: str) -> LogWriter:
    writer = LogWriter(path)
    for text in some:
        writer.append({**NOTE, "text": text})
    return writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions" / "project" / "s1.jsonl"


AWKWARD = ["plain", "two\nlines\r\n", "\u2028\u2029\x85", "\ud800 lone", "日本 🎉", "\x00", '"quotes" \\']


def test_lines_are_ascii_json_with_rising_seq_and_time(path: Path) -> None:
    write(path, *AWKWARD).close()
    data = path.read_bytes()
    assert data.isascii() and data.endswith(b"\n") and b"\r" not in data
    events = [json.loads(line) for line in data.split(b"\n")[:-1]]
    assert [event["seq"] for event in events] == list(range(1, len(AWKWARD) + 1))
    assert [event["text"] for event in events] == AWKWARD
    assert all(len(event["time"]) == 24 and event["time"].endswith("Z") for event in events)
    assert read_log(path).problems == []


def test_only_the_owner_may_read(path: Path) -> None:
    with_lock = write(path, "x")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert path.parent.parent.stat().st_mode & 0o777 == 0o700
    with_lock.close()


def test_a_writer_goes_on_where_another_ended(path: Path) -> None:
    write(path, "a", "b").close()
    writer = write(path, "c")
    assert writer.last_seq == 3 and writer.notices == []
    writer.close()
    assert texts(path) == ["a", "b", "c"]


@pytest.mark.parametrize("tail", [b'{"type":"message","te', b"\x00\x00\x00", b'{"type":"message"}', b"\xff\xfe", b"  "])
def test_a_cut_last_line_is_moved_aside(path: Path, tail: bytes) -> None:
    write(path, "a", "b").close()
    with path.open("ab") as file:
        file.write(tail)
    expected = [(3, CUT)] if tail.strip() else []
    assert read_log(path).problems == expected and texts(path) == ["a", "b"]
    writer = write(path, "c")
    assert len(writer.notices) == len(expected) and all("s1.cut" in notice for notice in writer.notices)
    writer.close()
    assert texts(path) == ["a", "b", "c"] and read_log(path).problems == []
    assert path.with_suffix(".cut").read_bytes() == tail + b"\n"
    assert [event["seq"] for event in read_log(path).events] == [1, 2, 3]


def test_a_second_cut_does_not_lose_the_first(path: Path) -> None:
    for tail in (b'{"one', b'{"two'):
        write(path, "a").close()
        with path.open("ab") as file:
            file.write(tail)
    write(path).close()
    assert path.with_suffix(".cut").read_bytes() == b'{"one\n{"two\n'


def test_a_whole_last_line_without_its_newline_is_kept(path: Path) -> None:
    write(path, "a", "b").close()
    path.write_bytes(path.read_bytes()[:-1])
    assert texts(path) == ["a", "b"] and read_log(path).problems == []
    writer = write(path, "c")
    assert writer.notices == []
    writer.close()
    assert texts(path) == ["a", "b", "c"]
    assert not path.with_suffix(".cut").exists()


def test_bad_lines_in_the_middle_are_skipped_and_told_by_number(path: Path) -> None:
    good = [encode_line({**NOTE, "seq": seq, "text": str(seq)}) for seq in (1, 2, 3)]
    bad = [
        b"\x00" * 300,
        b"{bad",
        b"[1]",
        b'{"seq":4}',
        b'{"type":"x"}',
        b'{"type":"x","seq":true}',
        b"\xff",
        b"[" * 9999,
    ]
    path.parent.mkdir(parents=True)
    path.write_bytes(good[0] + b"\n".join(bad) + b"\n" + good[1] + b"\n\n" + good[2])
    contents = read_log(path)
    assert [event["seq"] for event in contents.events] == [1, 2, 3]
    assert [line for line, _ in contents.problems] == list(range(2, 10))
    assert "300 NUL bytes" in contents.problems[0][1] and "not UTF-8" in contents.problems[6][1]
    writer = write(path)
    assert len(writer.notices) == 8 and "line 2" in writer.notices[0]
    assert writer.last_seq == 3
    writer.close()


def test_unknown_kinds_and_fields_of_other_versions_are_kept() -> None:
    line = b'{"v":9,"seq":7,"type":"from.the.future","odd":{"x":[1]}}\n'
    assert parse_log(line).events == [{"v": 9, "seq": 7, "type": "from.the.future", "odd": {"x": [1]}}]


def test_numbers_json_does_not_have(path: Path) -> None:
    writer = LogWriter(path)
    writer.append({"type": "route", "scores": [{"logprob": float("-inf")}, float("nan")], "ms": 1})
    writer.close()
    (event,) = read_log(path).events
    assert event["scores"] == [{"logprob": -1.7976931348623157e308}, None]


# --- one writer ------------------------------------------------------------------------------------------------------


def child(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


HOLD = """
import sys
from pathlib import Path
from aerix_server.session.log import LogWriter
writer = LogWriter(Path(sys.argv[1]))
writer.append({"type": "message", "text": "held"})
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_log_another_process_writes_is_refused_by_name_and_a_dead_holder_is_not(path: Path) -> None:
    with child(HOLD, str(path)) as other:
        assert other.stdout and other.stdout.readline() == "ready\n"
        with pytest.raises(AerixError) as caught:
            LogWriter(path)
        assert caught.value.code == "session_locked" and f"process {other.pid} on " in caught.value.message
        assert holder(path.with_suffix(".lock")).pid == other.pid
        assert texts(path) == ["held"]
        other.send_signal(signal.SIGKILL)
        other.wait(30)
    writer = write(path, "mine")
    assert texts(path) == ["held", "mine"]
    writer.close()
    assert not path.with_suffix(".lock").exists()


def test_a_log_is_refused_twice_in_one_process(path: Path) -> None:
    writer = write(path)
    with pytest.raises(AerixError, match="in use by process"):
        LogWriter(path)
    writer.close()
    writer.close()
    LogWriter(path).close()


def test_a_lock_file_of_nonsense_does_not_block(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.with_suffix(".lock").write_bytes(b"\xff{")
    write(path, "a").close()
    assert texts(path) == ["a"]


STREAM = """
import sys
from pathlib import Path
from aerix_server.session.log import LogWriter
writer = LogWriter(Path(sys.argv[1]))
for number in range(1_000_000):
    writer.append({"type": "segment", "text": f"{number} " + "x" * (number % 9000)})
    print(number, flush=True)
"""


def test_killing_the_writer_loses_nothing_that_was_written(path: Path) -> None:
    with child(STREAM, str(path)) as other:
        assert other.stdout
        while int(other.stdout.readline()) < 300:
            pass
        other.send_signal(signal.SIGKILL)
        told = [int(line) for line in other.stdout.read().split("\n") if line.isdigit()]
        other.wait(30)
    writer = LogWriter(path)
    events = read_log(path).events
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert len(events) > max(told, default=300)
    assert writer.last_seq == len(events)
    writer.close()


# --- a disk that fails -----------------------------------------------------------------------------------------------

FULL = """
import json, resource, sys
from pathlib import Path
from aerix_server.session.log import LogFailed, LogWriter
writer = LogWriter(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
written, failures = 0, []
for number in range(60):
    try:
        writer.append({"type": "message", "text": "x" * 200})
        written += 1
    except LogFailed as error:
        failures.append(str(error))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
writer.append({"type": "message", "text": "after"})
print(json.dumps([written, failures]))
"""


def test_a_line_that_does_not_fit_is_taken_back(path: Path) -> None:
    """A limit on the file's size cuts a write as a full disk does."""
    with child(FULL, str(path)) as other:
        out, _ = other.communicate(timeout=60)
    written, failures = json.loads(out)
    assert 0 < written < 60 and len(failures) == 60 - written
    assert all("cannot be written" in failure and str(path) in failure for failure in failures)
    contents = read_log(path)
    assert contents.problems == [] and len(contents.events) == written + 1
    assert [event["seq"] for event in contents.events] == list(range(1, written + 2))
    assert contents.events[-1]["text"] == "after"


@pytest.mark.parametrize(
    ("number", "says"),
    [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "read-only"), (errno.EIO, "reports an error")],
)
def test_a_failing_disk_is_named_and_the_line_can_be_written_later(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, says: str
) -> None:
    """The disk takes half a line, and not even the truncation at first."""
    writer = write(path, "a")
    real_write, real_truncate = os.write, os.ftruncate

    def half(handle: int, data: bytes) -> int:
        if len(data) < 60:
            raise OSError(number, os.strerror(number))
        return real_write(handle, data[: len(data) - 50])

    def fail(handle: int, size: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", half)
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(LogFailed, match=says):
        writer.append({**NOTE, "text": "b"})
    monkeypatch.setattr(os, "write", real_write)
    assert read_log(path).problems == [(2, CUT)] and texts(path) == ["a"]
    monkeypatch.setattr(os, "ftruncate", real_truncate)
    assert writer.append({**NOTE, "text": "c"})["seq"] == 2
    writer.close()
    assert texts(path) == ["a", "c"] and read_log(path).problems == []


@pytest.mark.parametrize(
    "make", [lambda path: path.write_text("a file"), lambda path: path.symlink_to("/proc/version")]
)
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "sessions")
    with pytest.raises(LogFailed, match="cannot be written"):
        LogWriter(tmp_path / "sessions" / "p" / "s.jsonl")


# --- properties ------------------------------------------------------------------------------------------------------

events = st.lists(st.dictionaries(st.text(max_size=8), st.text(max_size=40) | st.integers() | st.none()), max_size=8)


def lines_of(values: list[dict[str, Any]]) -> list[bytes]:
    return [encode_line({**value, "type": "message", "seq": seq}) for seq, value in enumerate(values, 1)]


@given(events, st.data())
def test_truncation_never_loses_a_whole_event(values: list[dict[str, Any]], data: st.DataObject) -> None:
    lines = lines_of(values)
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    loaded = parse_log(whole[:cut]).events
    complete = whole[:cut].count(b"\n")
    assert [event["seq"] for event in loaded[:complete]] == list(range(1, complete + 1))
    assert len(loaded) <= complete + 1


@given(events, st.data())
def test_garbage_between_lines_never_loses_a_good_event(values: list[dict[str, Any]], data: st.DataObject) -> None:
    garbage = st.binary(max_size=60).filter(lambda junk: not parse_log(junk).events)
    mixed = b""
    for line in lines_of(values):
        mixed += data.draw(garbage).replace(b"\n", b"") + b"\n" + line
    assert [event["seq"] for event in parse_log(mixed + data.draw(garbage)).events] == list(range(1, len(values) + 1))


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    parse_log(data)
