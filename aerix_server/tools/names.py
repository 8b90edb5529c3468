r"""Paths as the model writes and reads them.

A name may hold any byte but NUL and `/`. It is shown with what cannot be printed escaped one way (`\n`, `\t`, `\r`,
`\\`, and `\xNN` for each byte of anything else), and every shown name is taken back.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from pathlib import Path

from aerix_server.tools.base import ToolContext, ToolError

_COMPARED_NAMES = 5000
_SHORT = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_LONG = {escaped[1]: character for character, escaped in _SHORT.items()}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.?))", re.DOTALL)


def escape_name(name: str) -> str:
    """One line that stands for `name` (as os.fsdecode gives it) and for no other name."""
    return "".join(_SHORT.get(character) or _escape_character(character) for character in name)


def _escape_character(character: str) -> str:
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))


def unescape_name(text: str) -> str | None:
    """The name that `escape_name` shows as `text`; None when it never shows that."""
    parts: list[bytes] = []
    end = 0
    for found in _ESCAPE.finditer(text):
        parts.append(_encode(text[end : found.start()]))
        end = found.end()
        if found[1] is not None:
            parts.append(bytes([int(found[1], 16)]))
        elif found[2] in _LONG:
            parts.append(_LONG[found[2]].encode())
        else:
            return None
    parts.append(_encode(text[end:]))
    return os.fsdecode(b"".join(parts))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def display(path: Path, cwd: Path) -> str:
    """`path` for the model: relative to the working directory when it lies inside it, else absolute."""
    inside = path.relative_to(cwd) if path.is_relative_to(cwd) else path
    return escape_name(os.fspath(inside))


def resolve(text: str, ctx: ToolContext) -> Path:
    """The absolute path that the model means by `text`; it need not exist. `..` goes where the system says it goes.

    Raises ToolError for what can be no path.
    """
    if not text:
        raise ToolError("path is empty", "Give the path of a file or a directory; . is the working directory.")
    if "\0" in text:
        raise ToolError("path holds a NUL character, which no file name can")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise ToolError("path holds half of a surrogate pair, which no file name can") from None
    literal = _absolute(text, ctx.cwd)
    if "\\" in text:
        name = unescape_name(text)
        if name and "\0" not in name and os.path.lexists(shown := _absolute(name, ctx.cwd)):
            return shown
    if text.startswith("~/") and not os.path.lexists(literal):
        return _absolute(os.path.expanduser(text), ctx.cwd)  # noqa: PTH111 (takes a plain string, as it came)
    return literal


def _absolute(text: str, cwd: Path) -> Path:
    path = cwd / text
    if ".." not in path.parts:
        return path
    if path.name == "..":
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent)) / path.name


def no_such_path(path: Path, ctx: ToolContext, otherwise: str = "") -> ToolError:
    """The error for a path that is not there, with the names beside it that come near. `otherwise` is a further next
    step."""
    shown = display(path, ctx.cwd)
    if path.is_relative_to(ctx.spool_dir):
        return ToolError(f"spool entry gone: {shown}", "Do the call again whose output it held.")
    if path.is_symlink():
        return ToolError(f"{shown} is a link to {escape_name(os.fspath(path.readlink()))}, which does not exist")
    find = " ".join(filter(None, [f"Find it with glob and the pattern **/{escape_name(path.name)}.", otherwise]))
    try:
        beside = os.listdir(path.parent)  # noqa: PTH208 (names are all that is needed)
    except OSError:
        return ToolError(f"no such path: {shown}", find)
    near = [display(path.parent / name, ctx.cwd) for name in _close(path.name, beside)]
    if near:
        return ToolError(f"no such path: {shown}; near it: {', '.join(near)}", f"Use {near[0]} if you mean that.")
    return ToolError(f"no such path: {shown}", find)


def _close(name: str, others: list[str]) -> list[str]:
    return difflib.get_close_matches(name, others[:_COMPARED_NAMES], n=3, cutoff=0.7)


def look_at(path: Path, action: str, ctx: ToolContext) -> os.stat_result:
    """What is there, links followed. Raises ToolError: no such path, or what the system says instead."""
    try:
        return os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        raise no_such_path(path, ctx) from None
    except OSError as error:
        raise os_sentence(action, path, ctx, error) from error


def special_kind(mode: int) -> str | None:
    """What a file is that is neither a plain file nor a directory; None for those two. `mode` is st_mode."""
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return None
    kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a symbolic link"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def os_sentence(action: str, path: Path, ctx: ToolContext, error: OSError) -> ToolError:
    """An error of the system as a sentence: `cannot read src/x: Permission denied`."""
    return ToolError(f"cannot {action} {display(path, ctx.cwd)}: {error.strerror or error}")
