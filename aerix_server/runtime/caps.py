"""How a long result is cut. Pure: text and bytes in, text out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aerix_server.config.settings import ToolCaps

# How a command ended stands on its last line; the model needs it more than any line before it.
_STATUS = re.compile(r"\[(?:exit|signal|timeout|cancelled|killed)[^\[\]\n]*\]\s*$")


@dataclass(frozen=True)
class Cut:
    """A result cut to `kept`, with a `status` line that stays; `more` bytes of the whole are left out."""

    kept: str
    status: str
    more: int

    def render(self, path: str) -> str:
        """The text for the model; `path` holds the whole."""
        parts = [part for part in (self.kept.rstrip("\n"), self.status, pointer(self.more, path)) if part]
        return "\n".join(parts)


def cap_of(caps: ToolCaps, tool: str) -> int | None:
    """Bytes a result of `tool` may have; None where there is no cap."""
    value = getattr(caps, tool, None)
    return value if isinstance(value, int) else None


def byte_length(text: str) -> int:
    return len(text.encode("utf-8"))


def cut(text: str, limit: int, whole_bytes: int | None = None) -> Cut:
    """The first `limit` bytes of `text`, on a character boundary. `whole_bytes`: the size of a larger whole."""
    total = byte_length(text) if whole_bytes is None else whole_bytes
    found = _STATUS.search(text[-200:])
    status = found[0].rstrip() if found else ""
    body = text[: len(text) - len(found[0])] if found else text
    kept = body.encode("utf-8")[: max(limit - byte_length(status), 0)].decode("utf-8", "ignore")
    # Such a file holds the output only: the status is not among its bytes.
    told = byte_length(kept) + (byte_length(status) if whole_bytes is None else 0)
    return Cut(kept, status, max(total - told, 0))


def pointer(more: int, path: str) -> str:
    """The line that tells where the rest is."""
    return f'[truncated: {more} more bytes; read with read(path="{path}", offset=1)]'


def speakable(text: str) -> str:
    r"""The text with what UTF-8 cannot carry (lone surrogates, so odd bytes of file names) written as `\udcff`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
