"""What the grammars' tests share: a grammar compiled as a pool compiles it, over bytes, and texts drawn from it."""

from __future__ import annotations

from collections.abc import Callable

from llguidance import LLMatcher

from caldrix.protocol.messages import Json, Lark
from caldrix.remote.grammar import byte_compiler, keeps

COMPILER = byte_compiler()
_BYTES = 256


def compiled(grammar: str) -> LLMatcher:
    return COMPILER.matcher(Lark(kind="Lark", grammar=grammar))


def accepts(grammar: str, text: str) -> bool:
    """Whether the whole text is one of the grammar's."""
    return keeps(compiled(grammar), text)


def schema_accepts(schema: dict[str, object], text: str) -> bool:
    return keeps(COMPILER.matcher(Json(kind="Json", schema=schema)), text)


def drawn(grammar: str, choose: Callable[[list[int]], int], most: int) -> str | None:
    """A text of the grammar, each byte chosen among those allowed; None when it is longer than `most` bytes."""
    matcher, text = compiled(grammar), bytearray()
    while not (matcher.is_accepting() and matcher.is_stopped()):
        if len(text) == most:
            return None
        mask = matcher.compute_bitmask()
        allowed = [byte for byte in range(_BYTES) if mask[byte // 8] >> byte % 8 & 1]
        assert allowed, f"a dead end after {bytes(text)!r}: {matcher.get_error()}"
        byte = choose(allowed)
        assert matcher.consume_token(byte)
        text.append(byte)
    return text.decode()
