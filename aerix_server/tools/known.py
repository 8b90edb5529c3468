"""The file that write and edit start from: its bytes, its text, and whether the agent has seen it as it is now."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aerix_server.config.bounds import EDIT_FILE_BYTES
from aerix_server.tools.base import Refusal, ToolContext, ToolError
from aerix_server.tools.names import os_sentence
from aerix_server.tools.saving import Target, find_target
from aerix_server.tools.text import NotText, Text, decode, digest


@dataclass(frozen=True)
class Known:
    """A target and what is there now. `data` is None for a file that does not exist."""

    target: Target
    data: bytes | None

    def read_before(self, ctx: ToolContext) -> bool:
        return self.target.real in ctx.views.seen

    def changed(self, ctx: ToolContext) -> bool:
        """True when the agent has seen the file, and not as it is now."""
        seen = ctx.views.seen.get(self.target.real)
        return seen is not None and self.data is not None and seen != digest(self.data)

    def writer(self, ctx: ToolContext) -> str | None:
        """The other agent of this request that left the file as it is now; None when nothing is known of it."""
        last = ctx.shared.writer(self.target.real)
        theirs = last is not None and last.agent != ctx.agent and last.digest == digest(self.data or b"")
        return last.agent if last is not None and theirs else None

    def note_write(self, data: bytes, ctx: ToolContext) -> None:
        """The agent left the file with these bytes."""
        ctx.shared.wrote(self.target.real, ctx.agent, digest(data))

    def note_view(self, data: bytes, ctx: ToolContext) -> None:
        """The agent knows that the file holds these bytes."""
        ctx.views.saw(self.target.real, digest(data))


@contextlib.contextmanager
def held(path: Path, ctx: ToolContext) -> Iterator[Known]:
    """The file that `path` leads to, with every other agent kept out until the block is left.

    Raises Refusal for what must not be written, ToolError for what cannot be.
    """
    real = Path(os.path.realpath(path))
    with contextlib.ExitStack() as holding:
        try:
            holding.enter_context(ctx.shared.hold(real, ctx.cancelled.is_set))
        except TimeoutError as error:
            raise ToolError(str(error)) from None
        known = look_up(path, ctx)
        if known.target.real != real:
            raise ToolError(f"{known.target.shown(ctx)} came to lead elsewhere meanwhile", "Do the same call again.")
        yield known


def look_up(path: Path, ctx: ToolContext) -> Known:
    """Raises Refusal for what must not be written, ToolError for what cannot be."""
    target = find_target(path, ctx)
    if target.seen is None:
        return Known(target, None)
    if target.seen.st_size > EDIT_FILE_BYTES:
        limit = EDIT_FILE_BYTES // (1024 * 1024)
        raise ToolError(f"{target.shown(ctx)} has {target.seen.st_size} bytes; files over {limit} MiB are not edited")
    try:
        data = target.real.read_bytes()
    except OSError as error:
        raise os_sentence("read", path, ctx, error) from error
    _guard_buffer(target, data, ctx)
    return Known(target, data)


def _guard_buffer(target: Target, data: bytes, ctx: ToolContext) -> None:
    """An open buffer with unsaved text would lose to the file, or the file to it: neither is ours to choose."""
    unsaved = ctx.overlay(target.path)
    if unsaved is None:
        unsaved = ctx.overlay(target.real)
    if unsaved is None:
        return
    try:
        saved = decode(data).text
    except NotText:
        saved = None
    if unsaved.removeprefix("\ufeff") != saved:
        raise Refusal(f"{target.shown(ctx)} has unsaved changes in the editor; they must be saved or undone first")


def check_text(text: str, field: str) -> None:
    """Raises ToolError for text that no file can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(f"{field} holds half of a surrogate pair at character {error.start}") from None


def check_fits(text: str, file: Text, shown: str) -> None:
    """Raises ToolError when `text` cannot go into a file whose bytes are not UTF-8 without spoiling it."""
    if file.bad_byte is not None and not text.isascii():
        raise ToolError(
            f"{shown} is not valid UTF-8 at byte {file.bad_byte}, so its encoding is unknown and only ASCII text can "
            "be put into it; nothing was changed"
        )
