"""write: what is kept of a replaced file, what is refused, and that a file is the old one or the new one."""

from __future__ import annotations

import os
import stat

import pytest

MARKED = b"\xef\xbb\xbfhello\r\n"
UTF16 = "\ufeffone\n".encode("utf-16-le")


async def test_a_new_file_with_its_directories(bench):
    output = await bench.call("write", path="a/b/c.txt", content="one\ntwo\n")
    assert output.text == "created a/b/c.txt (2 lines)"
    assert output.touched == ("a/b/c.txt",)
    assert (bench.cwd / "a/b/c.txt").read_bytes() == b"one\ntwo\n"
    assert os.listdir(bench.cwd / "a/b") == ["c.txt"]


@pytest.mark.parametrize(
    ("before", "content", "after", "told"),
    [
        pytest.param(b"a\n", "b\nc\n", b"b\nc\n", "replaced f (2 lines, was 1)", id="plain"),
        pytest.param(MARKED, "x\ny\n", b"\xef\xbb\xbfx\r\ny\r\n", "its CRLF line endings were kept", id="E03 and CRLF"),
        pytest.param(MARKED, "\ufeffx\n", b"\xef\xbb\xbfx\r\n", "CRLF", id="one mark only"),
        pytest.param(b"a\r\nb\nc\r\n", "a\nB\nc\n", b"a\r\nB\nc\r\n", "CRLF", id="mixed endings"),
        pytest.param(b"a\r\nb\nc\r\n", "a\nc\nd\n", b"a\r\nc\r\nd\r\n", "CRLF", id="mixed, line gone"),
        pytest.param(b"a\n", "b", b"b", "(1 line, was 1)", id="last newline as given"),
        pytest.param("\ufeffa\n".encode("utf-16-le"), "é\n", "\ufeffé\n".encode("utf-16-le"), "(1 line", id="UTF-16"),
        pytest.param(b"caf\xe9\n", "cafe\n", b"cafe\n", "was not valid UTF-8 at byte 3", id="latin-1"),
        pytest.param(b"", "x\n", b"x\n", "replaced f (1 line, was 0)", id="empty"),
    ],
)
async def test_a_replaced_file(bench, before, content, after, told):
    path = bench.put("f", before)
    await bench.text("read", path="f")
    text = await bench.text("write", path="f", content=content)
    assert path.read_bytes() == after
    assert told in text


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (b"a\nb\n", "f exists and has 2 lines that you have not read; read it first, or use edit"),
        (b"a", "f exists and has 1 line that you have not read; read it first, or use edit"),
        (b"\n", "f exists and has 1 line that you have not read; read it first, or use edit"),
        (b"caf\xe9\n", "f exists and has 1 line that you have not read; read it first, or use edit"),
        (UTF16, "f exists and has 1 line that you have not read; read it first, or use edit"),
        (b"\x00\x01", "f exists, is no text (2 bytes) and so cannot be read; it is not replaced unread"),
        (b"\xff\xfea", "f exists, is no text (3 bytes) and so cannot be read; it is not replaced unread"),
    ],
)
async def test_an_unread_file_is_not_replaced(bench, before, told):
    """E09: small models write over files that they never saw."""
    path = bench.put("f", before)
    stands = (path.read_bytes(), path.stat().st_mtime_ns)
    assert await bench.refusal("write", path="f", content="c\n") == told
    assert (path.read_bytes(), path.stat().st_mtime_ns) == stands


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\xff\xfe"])
async def test_an_unread_file_without_a_line_is_replaced(bench, before):
    path = bench.put("f", before)
    assert await bench.text("write", path="f", content="x\n") == "replaced f (1 line, was 0)"
    assert path.read_bytes().startswith(before) and path.stat().st_size > len(before)


async def test_a_file_that_changed_since_it_was_read_is_refused(bench):
    """E09."""
    path = bench.put("f", "a\n")
    await bench.text("read", path="f")
    path.write_text("by another\n")
    assert await bench.refusal("write", path="f", content="b\n") == (
        "f changed since you read it; read it again, then write"
    )
    assert path.read_text() == "by another\n"
    await bench.text("read", path="f")
    assert await bench.text("write", path="f", content="b\n") == "replaced f (1 line, was 1)"
    assert await bench.text("write", path="f", content="c\n") == "replaced f (1 line, was 1)"


async def test_the_same_text_is_not_written(bench):
    path = bench.put("f", "a\n")
    before = path.stat().st_mtime_ns
    output = await bench.call("write", path="f", content="a\n")
    assert (output.text, output.touched) == ("f holds this text already; nothing was written", ())
    assert path.stat().st_mtime_ns == before


async def test_replacement_characters_never_reach_a_file_of_other_bytes(bench):
    """E04."""
    path = bench.put("f", b"caf\xe9\n")
    assert "not valid UTF-8 at byte 3" in await bench.error("write", path="f", content="caf\ufffd\n")
    assert path.read_bytes() == b"caf\xe9\n"


async def test_links(bench):
    """E07: the target is written, also one that does not exist yet; a loop is an error by name."""
    bench.put("real", "old")
    (bench.cwd / "link").symlink_to("real")
    (bench.cwd / "dangling").symlink_to("made")
    (bench.cwd / "loop").symlink_to("loop")
    assert "that you have not read" in await bench.refusal("write", path="link", content="new")
    await bench.text("read", path="real")
    assert "link (a link to real)" in await bench.text("write", path="link", content="new")
    assert (bench.cwd / "real").read_text() == "new"
    assert await bench.text("write", path="dangling", content="x") == "created dangling (a link to made) (1 line)"
    assert (bench.cwd / "made").read_text() == "x"
    assert (bench.cwd / "link").is_symlink()
    assert "cannot write loop" in await bench.error("write", path="loop", content="x")


async def test_mode_and_extended_attributes_are_kept(bench):
    path = bench.put("run.sh", "a")
    path.chmod(0o750)
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("no extended attributes here")
    await bench.text("read", path="run.sh")
    await bench.text("write", path="run.sh", content="b")
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert os.getxattr(path, "user.note") == b"kept"


async def test_a_new_file_has_the_mode_that_umask_gives(bench):
    plain = bench.put("by_open")
    await bench.text("write", path="by_write", content="x")
    assert (bench.cwd / "by_write").stat().st_mode == plain.stat().st_mode


async def test_what_is_no_plain_file(bench):
    os.mkfifo(bench.cwd / "pipe")
    bench.put("file", "x")
    (bench.cwd / "dir").mkdir()
    assert (
        await bench.refusal("write", path="pipe", content="x") == "pipe is a named pipe; only plain files are written"
    )
    assert "is a device" in await bench.refusal("write", path="/dev/null", content="x")
    assert await bench.error("write", path="dir", content="x") == "dir is a directory"
    assert "a part of its path is a file" in await bench.error("write", path="file/inner/deep", content="x")
    assert "path holds a NUL" in await bench.error("write", path="a\0b", content="x")
    assert await bench.error("write", path="", content="x") == "path is empty"
    assert "File name too long" in await bench.error("write", path="n" * 300, content="x")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
async def test_read_only(bench):
    path = bench.put("d/f", "x")
    await bench.text("read", path="d/f")
    path.parent.chmod(0o555)
    assert await bench.error("write", path="d/new", content="x") == "cannot write d/new: the directory d is read-only"
    assert "replaced d/f" in await bench.text("write", path="d/f", content="y")
    path.parent.chmod(0o755)
    path.chmod(0o444)
    assert await bench.error("write", path="d/f", content="z") == "d/f is read-only (mode 0444)"


@pytest.mark.parametrize(
    ("content", "written", "told"),
    [
        ("     1\tdef f():\n     2\t    return 1\n", "def f():\n    return 1\n", True),
        ("     1\tone line", "one line", True),
        ("     1\ta\n     3\tb\n", "     1\ta\n     3\tb\n", False),
        ("     1\ta\nb\n", "     1\ta\nb\n", False),
        ("1\ta\n2\tb\n", "1\ta\n2\tb\n", False),
        ("", "", False),
    ],
)
async def test_line_numbers_that_read_shows_are_not_written(bench, content, written, told):
    """Seen with a small model: a file written back with the numbers in it."""
    said = await bench.text("write", path="new.txt", content=content)
    assert (bench.cwd / "new.txt").read_text() == written
    assert ("line numbers" in said) is told
