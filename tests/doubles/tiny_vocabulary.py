"""The vocabulary of the tiny models: a byte-level BPE that knows every byte, some merges, and ChatML's control tokens.

The merges are learnt here from a few lines of English, Python and JSON, always the same ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

from gguf import TokenType

CONTROL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
USER_DEFINED: Final = ("<tool_call>", "</tool_call>")
TEXT: Final = """\
The quick brown fox jumps over the lazy dog, and the dog sleeps on in the shade of the old tree near the river.
You are a helpful assistant. Answer the question in one sentence, then say which file the answer was found in.
There were other things to read in that house: letters, maps, a list of names, and the story of how it was built.
def read_lines(path: str, limit: int) -> list[str]:
    with open(path) as stream:
        return [line.strip() for line in stream][:limit]
for name, value in settings.items():
    print(f"{name} = {value}")
{"calls": [{"name": "read", "arguments": {"path": "src/main.py", "limit": 200}}, {"name": "edit"}], "final": null}
"""
_WORD: Final = re.compile(r" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")
"""How the "gpt-2" pre-tokeniser cuts text that has no apostrophes and only ASCII."""


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in id order, in the spelling of GGUF; `spoken` marks those that are printable ASCII text."""

    tokens: tuple[str, ...]
    kinds: tuple[TokenType, ...]
    merges: tuple[str, ...]
    spoken: tuple[bool, ...]

    def id_of(self, token: str) -> int:
        return self.tokens.index(token)


@cache
def vocabulary() -> Vocabulary:
    letters = byte_letters()
    merges = _learn([tuple(letters[byte] for byte in word.encode()) for word in _WORD.findall(TEXT)])
    plain = [*letters, *(left + right for left, right in merges)]
    printable = {letters[byte] for byte in (*range(0x20, 0x7F), 0x0A)}
    return Vocabulary(
        tokens=(*plain, *CONTROL, *USER_DEFINED),
        kinds=(
            *[TokenType.NORMAL] * len(plain),
            *[TokenType.CONTROL] * len(CONTROL),
            *[TokenType.USER_DEFINED] * len(USER_DEFINED),
        ),
        merges=tuple(f"{left} {right}" for left, right in merges),
        spoken=(*(set(token) <= printable for token in plain), *[False] * (len(CONTROL) + len(USER_DEFINED))),
    )


def byte_letters() -> list[str]:
    """The printable character that stands for each byte in a GPT-2 vocabulary."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _learn(words: list[tuple[str, ...]]) -> list[tuple[str, str]]:
    """The most frequent pair, as long as one comes twice; of equals the first in order: the result never varies."""
    counted = Counter(words)
    merges: list[tuple[str, str]] = []
    while True:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in counted.items():
            for pair in pairwise(word):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if pairs[best] < 2:
            return merges
        merges.append(best)
        counted = Counter({tuple(_merged(word, best)): count for word, count in counted.items()})


def _merged(word: tuple[str, ...], pair: tuple[str, str]) -> Iterator[str]:
    place = 0
    while place < len(word):
        joined = word[place : place + 2] == pair
        yield "".join(pair) if joined else word[place]
        place += 2 if joined else 1
