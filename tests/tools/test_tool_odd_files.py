"""Files of every odd kind: read, grep and edit give one verdict on each, and what is refused stays as it was."""

from __future__ import annotations

import os
import socket
import stat
import struct
from pathlib import Path

import pytest

TEXTS = [
    # content, the line of `needle` on which all three agree, the bytes after needle → thread
    pytest.param(b"a\nneedle\n", 2, b"a\nthread\n", id="E02 LF"),
    pytest.param(b"a\r\nneedle\r\n", 2, b"a\r\nthread\r\n", id="E01 CRLF"),
    pytest.param(b"a\rb\rneedle\r", 1, b"a\rb\rthread\r", id="E02 CR only"),
    pytest.param(b"a\r\nb\nc\r\r\nneedle\rx\n", 4, b"a\r\nb\nc\r\r\nthread\rx\n", id="E02 mixed, lone CR"),
    pytest.param(b"a\nneedle", 2, b"a\nthread", id="E05 no last newline"),
    pytest.param(b"needle", 1, b"thread", id="E05 one line without newline"),
    pytest.param(b"\n\n\nneedle\n\n", 4, b"\n\n\nthread\n\n", id="E05 empty lines at the end"),
    pytest.param(b"\xef\xbb\xbfneedle\n", 1, b"\xef\xbb\xbfthread\n", id="E03 UTF-8 mark"),
    pytest.param(b"\xef\xbb\xbf\xef\xbb\xbfneedle\n", 1, b"\xef\xbb\xbf\xef\xbb\xbfthread\n", id="E03 two marks"),
    pytest.param(
        "\ufeffa\r\nneedle\r\n".encode("utf-16-le"), 2, "\ufeffa\r\nthread\r\n".encode("utf-16-le"), id="E04 UTF-16LE"
    ),
    pytest.param("\ufeffa\nneedle".encode("utf-16-be"), 2, "\ufeffa\nthread".encode("utf-16-be"), id="E04 UTF-16BE"),
    pytest.param(b"caf\xe9\nneedle\n", 2, b"caf\xe9\nthread\n", id="E04 latin-1"),
    pytest.param(b"\xd6\xd0\xce\xc4\nneedle \xd6\xd0\n", 2, b"\xd6\xd0\xce\xc4\nthread \xd6\xd0\n", id="E04 GBK"),
    pytest.param(b"\x93\xfa\x96{\nneedle\n", 2, b"\x93\xfa\x96{\nthread\n", id="E04 Shift-JIS"),
    pytest.param(b"\xed\xa0\x80\nneedle\n", 2, b"\xed\xa0\x80\nthread\n", id="E04 a surrogate's bytes"),
    pytest.param(b"needle \xff tail\n", 1, b"thread \xff tail\n", id="S03 a byte that is never text"),
    pytest.param(
        "a\x0cb\u2028c\x85d\re\nneedle\n".encode(), 2, "a\x0cb\u2028c\x85d\re\nthread\n".encode(), id="S04 other ends"
    ),
    pytest.param(b"\x1c\x1d\x1e\x0b\nneedle\n", 2, b"\x1c\x1d\x1e\x0b\nthread\n", id="S04 separators"),
    pytest.param(b"x" * 300_000 + b"\nneedle\n", 2, b"x" * 300_000 + b"\nthread\n", id="S01 a long line before"),
    pytest.param(b"\x1b[31mneedle\x1b[0m\n", 1, b"\x1b[31mthread\x1b[0m\n", id="S03 escape sequences"),
]


@pytest.mark.parametrize("name", ["f", "f.py"])
@pytest.mark.parametrize(("content", "line", "after"), TEXTS)
async def test_one_verdict_on_text(bench, name, content, line, after):
    """E01 to E05, S03, S04: the numbers of read, grep and edit are the same, and every other byte is kept."""
    path = bench.put(name, content)
    shown = await bench.text("read", path=name)
    assert any(row.startswith(f"{line:6d}\t") and "needle" in row for row in shown.split("\n"))
    assert (await bench.text("grep", pattern="needle", path=name)).startswith(f"{name}:{line}:")
    assert (await bench.text("grep", pattern="needle")).startswith(f"{name}:{line}:")
    assert f"edited {name}: 1 replacement at line {line}" in await bench.text(
        "edit", path=name, old="needle", new="thread"
    )
    assert path.read_bytes() == after


@pytest.mark.parametrize("name", ["f", "f.py"])
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x00\x01needle", id="S03 NUL at the start"),
        pytest.param(b"needle\n" + b"x\n" * 50_000 + b"\x00", id="S03 NUL at the end"),
        pytest.param(b"\x89PNG\r\n\x1a\n\x00needle", id="S03 PNG"),
        pytest.param("needle\n".encode("utf-16-le"), id="E04 UTF-16 without a mark"),
        pytest.param("\ufeffneedle\n".encode("utf-32-le"), id="E04 UTF-32"),
        pytest.param("\ufeffneedle\n".encode("utf-16-le") + b"x", id="E04 half a character of UTF-16"),
        pytest.param("\ufeffneedle".encode("utf-16-be") + b"\xd8\x00\x00a", id="E04 half a pair of UTF-16"),
    ],
)
async def test_one_verdict_on_what_is_no_text(bench, name, content):
    """S03, E04: none of the three shows or changes it."""
    path = bench.put(name, content)
    stands = (path.read_bytes(), path.stat().st_mtime_ns)
    told = [await bench.error("read", path=name), await bench.error("edit", path=name, old="needle", new="x")]
    assert all(f"{name} is binary" in text or f"{name} is not valid UTF-16" in text for text in told)
    found = await bench.text("grep", pattern="needle")
    assert "needle\n" not in found.replace("no match for needle", "") and f"{name}:" not in found
    if name == "f" or b"needle" in content:
        assert "skipped: binary]" in found
    assert "exists, is no text" in await bench.refusal("write", path=name, content="x")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == stands


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\xff\xfe"])
async def test_files_without_a_line(bench, content):
    """E12, E03: an empty file, and one of nothing but a mark."""
    path = bench.put("f", content)
    assert await bench.text("read", path="f") == "[empty file]"
    assert await bench.text("grep", pattern="x") == "no match for x in 1 file"
    assert "old is empty" in await bench.error("edit", path="f", old="", new="x")
    assert "old was not found" in await bench.error("edit", path="f", old="a", new="x")
    assert path.read_bytes() == content


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        # Its own path may be longer than such an address may be.
        made.bind(f"/proc/self/fd/{os.open(path.parent, os.O_RDONLY)}/{path.name}")


KINDS = {
    "a named pipe": os.mkfifo,
    "a socket": make_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_no_plain_file_is_refused_by_every_tool(bench, kind):
    """E07, S05: none of them waits for its other end."""
    KINDS[kind](bench.cwd / "odd")
    bench.put("f", "needle\n")
    for tool, fields in (
        ("read", {}),
        ("grep", {"pattern": "x"}),
        ("edit", {"old": "a", "new": "b"}),
        ("write", {"content": "x"}),
    ):
        assert f" is {kind}; only plain files are " in await bench.refusal(tool, path="odd", **fields)
    assert await bench.text("grep", pattern="needle") == "f:1:needle"
    assert await bench.text("glob", pattern="*") == "f"
    assert "1 file," in await bench.text("repo_map")


@pytest.mark.parametrize("path", ["/proc/self/status", "/proc/self/mem", "/sys/kernel/notes"])
async def test_files_of_the_kernel_end(bench, path):
    """S03: sizes that are wrong, and reads that fail."""
    for tool, fields in (("read", {}), ("grep", {"pattern": "zzz"}), ("edit", {"old": "zzz", "new": "y"})):
        try:
            await bench.text(tool, path=path, **fields)
        except Exception as error:
            assert type(error).__name__ in ("ToolError", "Refusal")


@pytest.mark.parametrize("mode", [0o644, 0o755, 0o600, 0o4755, 0o2755, 0o1644])
@pytest.mark.parametrize("tool", ["edit", "write"])
@pytest.mark.parametrize("linked", [False, True])
async def test_the_mode_is_kept(bench, mode, tool, linked):
    """E07: also the bits that a write clears. Found by running this as a user who is not the superuser."""
    path = bench.put("f", "old\n")
    path.chmod(mode)
    if linked:
        os.link(path, bench.cwd / "again")
    await bench.text("read", path="f")
    fields = {"old": "old", "new": "new"} if tool == "edit" else {"content": "new\n"}
    await bench.text(tool, path="f", **fields)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new\n", mode)


async def test_the_access_list_and_the_attributes_are_kept(bench):
    """E07: also where one attribute is the system's alone."""
    path = bench.put("f", "old\n")
    path.chmod(0o640)
    entries = [(0x01, 6, -1), (0x02, 4, 1), (0x04, 4, -1), (0x10, 4, -1), (0x20, 0, -1)]
    listed = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", listed)
        os.setxattr(path, "user.a", b"1")
        os.setxattr(path, "user.z", b"2")
    except (OSError, AttributeError):
        pytest.skip("no access lists here")
    await bench.text("edit", path="f", old="old", new="new")
    assert os.getxattr(path, "system.posix_acl_access") == listed
    assert (os.getxattr(path, "user.a"), os.getxattr(path, "user.z")) == (b"1", b"2")


@pytest.mark.parametrize("tool", ["edit", "write"])
async def test_every_hard_link_sees_the_change(bench, tool):
    """E07: and stays a link to the one file."""
    path = bench.put("f", "old and longer\n")
    os.link(path, bench.cwd / "again")
    inode = path.stat().st_ino
    await bench.text("read", path="f")
    fields = {"old": "old and longer", "new": "new"} if tool == "edit" else {"content": "new\n"}
    await bench.text(tool, path="f", **fields)
    assert (bench.cwd / "again").read_text() == "new\n"
    assert path.stat().st_ino == inode == (bench.cwd / "again").stat().st_ino


async def test_a_chain_of_links_of_any_length(bench):
    """E07: up to what the system follows, and beyond it an error by name."""
    bench.put("l0", "one\n")
    for number in range(60):
        (bench.cwd / f"l{number + 1}").symlink_to(f"l{number}")
    assert "edited l30 (a link to l0)" in await bench.text("edit", path="l30", old="one", new="two")
    assert (bench.cwd / "l0").read_text() == "two\n"
    assert (bench.cwd / "l30").is_symlink() and (bench.cwd / "l1").is_symlink()
    for tool, fields in (("read", {}), ("edit", {"old": "two", "new": "x"}), ("grep", {"pattern": "x"})):
        assert "Too many levels of symbolic links" in await bench.error(tool, path="l60", **fields)


@pytest.mark.parametrize("raw", [b"-rf", b"--version", b"-", b"a b", b"n\nl", b"bad\xff", b"$(x)", b"*", b"[a]", b"~"])
@pytest.mark.parametrize("folder", [b"", b"-d/", b"in\xffner\n/"])
async def test_names_of_any_bytes_are_edited_and_written(bench, raw, folder):
    """S06: a name as glob shows it is one for edit and write too."""
    path = Path(os.fsdecode(os.path.join(os.fsencode(bench.cwd), folder + raw)))
    path.parent.mkdir(exist_ok=True)
    path.write_text("needle\n")
    name = await bench.text("glob", pattern="*")
    assert f"edited {name}: 1 replacement" in await bench.text("edit", path=name, old="needle", new="thread")
    assert await bench.text("grep", pattern="thread") == f"{name}:1:thread"
    assert await bench.text("grep", pattern="thread", path=name) == f"{name}:1:thread"
    await bench.text("read", path=name)
    assert f"replaced {name}" in await bench.text("write", path=name, content="x\n")
    assert path.read_text() == "x\n"
    assert len(os.listdir(os.fsencode(path.parent))) == 1


@pytest.mark.parametrize(
    ("tool", "fields"),
    [
        ("read", {}),
        ("grep", {"pattern": "x"}),
        ("glob", {"pattern": "x"}),
        ("edit", {"old": "a", "new": "b"}),
        ("write", {"content": "x"}),
    ],
)
@pytest.mark.parametrize("path", ["n" * 300, "d/" * 499 + "f", "\udcff" * 256])
async def test_names_that_are_too_long(bench, tool, fields, path):
    """S08: a sentence, from every tool. Found by trying: grep and glob let the system's error through."""
    try:
        text = await bench.text(tool, path=path, **fields)
    except Exception as error:
        assert type(error).__name__ == "ToolError"
        assert any(told in str(error) for told in ("too long", "no such path", "half of a surrogate pair"))
    else:
        assert tool == "write" and text.startswith("created ")


async def test_a_folder_deeper_than_a_path_may_be(bench):
    """S05: what cannot be reached is told, in few words."""
    bench.put("f", "needle\n")
    handle = os.open(bench.cwd, os.O_RDONLY)
    for _ in range(100):
        os.mkdir("d" * 50, dir_fd=handle)
        inner = os.open("d" * 50, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    found = [
        await bench.text("grep", pattern="needle"),
        await bench.text("glob", pattern="*"),
        await bench.text("repo_map"),
    ]
    assert all("[1 directory could not be read, dddd" in text and len(text) < 400 for text in found)


async def test_a_path_that_names_a_directory(bench):
    """E12: no file is made for a name that ends with a slash."""
    assert await bench.error("write", path="made/", content="x") == "made/ names a directory"
    assert os.listdir(bench.cwd) == []


async def test_a_search_says_what_git_keeps_from_it(repository):
    """S08: nothing found, where something was not looked at."""
    repository.put(".gitignore", "build/\n*.log\n.env\nout/\n")
    for name in ("build/a.py", "x.log", ".env", "out/b"):
        repository.put(name, "needle\n")
    assert await repository.text("grep", pattern="needle") == (
        "no match for needle in 1 file\n[not searched, being ignored by git: .env, build/, out/ and 1 more]"
    )
    assert "ignored" not in await repository.text("grep", pattern="build")


@pytest.mark.parametrize("pattern", ["a\nb", r"a\nb", r"\n"])
async def test_a_pattern_over_lines(bench, pattern):
    """S08: in words of ours, not of the program's options."""
    assert await bench.error("grep", pattern=pattern) == (
        "a match lies within one line, so the pattern cannot hold a line end"
    )
