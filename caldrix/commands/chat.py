"""A chat on a terminal: lines in, answers streamed out, and commands that begin with a slash."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from caldrix.client.client import GenerationFrame
from caldrix.commands.answer import Answer, Conversation
from caldrix.commands.bars import PromptReport
from caldrix.commands.input_line import Lines, open_lines
from caldrix.commands.interrupts import Interrupted, Interrupts
from caldrix.commands.plain import takes_escapes, visible
from caldrix.commands.stats import stats_line
from caldrix.commands.transcript import save
from caldrix.commands.word_wrap import WordWrap
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Delta, Done, Member, Progress, Queued

HELP: Final = """/help         this list
/clear        forget what was said; /system stays
/stats        show counts and rates after each answer, or no longer
/system TEXT  what the model is told first; alone: show it; -: nothing
/save FILE    write the chat as Markdown
/exit         leave, as Ctrl-D does
Alt-Enter begins a new line; Ctrl-C stops an answer, twice leaves.
A blank in front sends a line that begins with a slash."""
COMMAND: Final = re.compile(r"/([a-z]*)(?:\s+(.*))?", re.DOTALL)


class Leave(Exception):
    """The person has had enough."""


class Chat:
    def __init__(self, conversation: Conversation, member: Member, *, stats: bool) -> None:
        self._conversation = conversation
        self._member = member
        self._stats = stats
        self._last: Answer | None = None
        self._interrupts = Interrupts()
        self._commands: dict[str, Callable[[str], Awaitable[None]]] = {
            "help": self._help,
            "clear": self._clear,
            "stats": self._toggle_stats,
            "system": self._system,
            "save": self._save,
            "exit": self._exit,
        }

    async def run(self, lines: Lines | None = None) -> None:
        """Until Ctrl-D, /exit, or Ctrl-C twice, which raises KeyboardInterrupt. Raises ConnectionLost."""
        note(f"{self._member.model}, {self._member.window} tokens of room. /help lists commands, Ctrl-D leaves.")
        for told in self._member.notes:
            note(told)
        lines = lines or open_lines()
        with self._interrupts.listening():
            while True:
                try:
                    line = await self._interrupts.ends(lines.next())
                except Interrupted:
                    note("Ctrl-C again, or Ctrl-D, leaves.")
                    continue
                except EOFError:
                    sys.stdout.write("\n")
                    return
                if not line.strip():
                    continue
                self._interrupts.forgive()
                try:
                    await self._take(line)
                except Leave:
                    return

    async def _take(self, line: str) -> None:
        if match := COMMAND.fullmatch(line.rstrip()):
            name, words = match[1], (match[2] or "").strip()
            if command := self._commands.get(name):
                await command(words)
            else:
                note(f"there is no command /{name}; /help lists those there are.")
            return
        try:
            await self._ask(line.strip())
        except Refused as refusal:
            hint = " (/clear forgets what was said)" if refusal.code == "window_exceeded" else ""
            note(f"{refusal.message}{hint}")

    async def _ask(self, text: str) -> None:
        view = AnswerView()
        try:
            self._last = await self._interrupts.ends(self._conversation.ask(text, view.show))
        except Interrupted:
            view.close()
            note("stopped.")
            await self._conversation.settle()
            return
        finally:
            view.close()
        if self._stats:
            note(stats_line(self._last.done, self._last.first_ms))
        if self._last.done.finish == "length":
            note(
                f"cut at {self._last.done.usage.completion_tokens} tokens; --max-new-tokens sets how many there may be."
            )

    async def _help(self, words: str) -> None:
        note(HELP)

    async def _clear(self, words: str) -> None:
        await self._conversation.restart(forget=True)
        note("what was said is forgotten.")

    async def _toggle_stats(self, words: str) -> None:
        self._stats = not self._stats
        note("stats follow each answer." if self._stats else "stats are off.")
        if self._stats and self._last:
            note(stats_line(self._last.done, self._last.first_ms))

    async def _system(self, words: str) -> None:
        if words:
            self._conversation.system = None if words == "-" else words
            await self._conversation.restart(forget=False)
        note(f"system: {self._conversation.system or 'nothing'}")

    async def _save(self, words: str) -> None:
        if not words:
            note("/save needs the name of a file.")
            return
        path = Path(words)
        try:
            save(path, self._member.model, self._conversation.system, self._conversation.turns)
        except FileExistsError:
            note(f"{path} is there already and stays as it is; choose another name.")
        except (OSError, RuntimeError) as error:
            note(f"cannot write {path}: {getattr(error, 'strerror', None) or error}")
        else:
            note(f"saved to {path}.")

    async def _exit(self, words: str) -> None:
        raise Leave


class AnswerView:
    """Shows the frames of an answer on a terminal: a bar while a long prompt is read, then the text word by word."""

    def __init__(self) -> None:
        self._before = PromptReport()
        self._wrap = WordWrap(shutil.get_terminal_size().columns)
        self._open = False

    def show(self, frame: GenerationFrame) -> None:
        match frame:
            case Queued() | Progress():
                self._before(frame)
            case Delta(text=text) if text:
                self._before.stop()
                self._open = not text.endswith("\n")
                sys.stdout.write(self._wrap.feed(visible(text)))
                sys.stdout.flush()
            case Done():
                self.close()

    def close(self) -> None:
        """End the line that the text stands on."""
        self._before.stop()
        if self._open:
            self._open = False
            sys.stdout.write(self._wrap.end() + "\n")
            sys.stdout.flush()


def note(text: str) -> None:
    """A dim line beside the conversation, on stderr, broken between words at the terminal's width."""
    shown = visible(text)
    if takes_escapes(sys.stderr):
        Console(stderr=True, highlight=False).print(Text(shown, style="dim"))
    else:
        sys.stderr.write(f"{shown}\n")
        sys.stderr.flush()
