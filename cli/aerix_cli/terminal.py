"""stdout and stderr as bytes: UTF-8 whatever the locale, no wait in the loop, and a reader that may leave."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Mapping


class ReaderGone(Exception):
    """Nobody reads stdout any more (EPIPE)."""


def wants_color(mode: str, fd: int, env: Mapping[str, str]) -> bool:
    """`auto` needs a terminal that is not dumb, and no NO_COLOR."""
    if mode != "auto":
        return mode == "always"
    return is_screen(fd, env)


def is_screen(fd: int, env: Mapping[str, str]) -> bool:
    """May escape codes be written there unasked?"""
    return not env.get("NO_COLOR") and env.get("TERM", "dumb") != "dumb" and os.isatty(fd)


async def write_out(text: str) -> None:
    """All of it to stdout. Raises ReaderGone, and OSError such as a full disk."""
    try:
        await asyncio.to_thread(_write_all, 1, text.encode("utf-8", "backslashreplace"))
    except BrokenPipeError as error:
        raise ReaderGone from error


def write_err(text: str) -> None:
    """To stderr; when nobody reads there, it is lost."""
    try:
        _write_all(2, text.encode("utf-8", "backslashreplace"))
    except OSError:
        return


def watch_reader(loop: asyncio.AbstractEventLoop, gone: Callable[[], None]) -> None:
    """Call `gone` as soon as the reader of a pipe on stdout leaves, also while nothing is written."""
    if not stat.S_ISFIFO(os.fstat(1).st_mode):
        return

    def left() -> None:
        loop.remove_reader(1)
        gone()

    loop.add_reader(1, left)  # of a pipe's writing end only its error is ever reported


def open_missing_streams() -> None:
    """A command that was started without stdin, stdout or stderr gets /dev/null, so that no pipe takes the number."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
