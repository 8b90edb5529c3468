"""The lines of a chat: edited, with a history and pasted lines kept together, or plain where no escapes are wanted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import platformdirs
from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from caldrix.commands.plain import takes_escapes
from caldrix.daemon.threads import in_daemon_thread

PROMPT = "> "
CONTINUED = "  "


class Lines(Protocol):
    async def next(self) -> str:
        """What the person entered next. Raises EOFError at the end of input, KeyboardInterrupt on Ctrl-C."""


def open_lines() -> Lines:
    """Edited lines where the terminal can show them."""
    return EditedLines() if takes_escapes(sys.stdout) else PlainLines()


class EditedLines:
    def __init__(self) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=open_history(history_file()),
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation=CONTINUED,
            enable_open_in_editor=False,
        )

    async def next(self) -> str:
        return await self._session.prompt_async(PROMPT, handle_sigint=False)


class PlainLines:
    """A read that was left is taken up by the next call: the terminal is read by one thread at a time."""

    def __init__(self) -> None:
        self._reading: asyncio.Future[str] | None = None

    async def next(self) -> str:
        sys.stderr.write(PROMPT)
        sys.stderr.flush()
        if self._reading is None:
            self._reading = asyncio.ensure_future(in_daemon_thread(_read_line, "caldrix-input"))
        line = await asyncio.shield(self._reading)
        self._reading = None
        if not line:
            raise EOFError
        return line


def history_file() -> Path:
    """`$XDG_STATE_HOME/caldrix/run-history`."""
    return platformdirs.user_state_path("caldrix", appauthor=False) / "run-history"


def open_history(path: Path) -> History:
    """The history at `path`, private to its user; one for this chat only where no file can be kept."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return _KeptHistory(path)


class _KeptHistory(FileHistory):
    """A disk that is full or gone costs the history, not the chat."""

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(string)


def _keys() -> KeyBindings:
    """Enter sends, Alt-Enter begins a new line, Ctrl-C empties the line before it leaves the chat."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return keys


def _read_line() -> str:
    """The next line of the terminal; empty when it was closed. Not by sys.stdin, whose lock an exit would wait for."""
    return os.read(sys.stdin.fileno(), 1 << 16).decode("utf-8", "replace")
