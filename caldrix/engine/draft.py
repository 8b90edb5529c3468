"""Prompt-lookup drafting (Saxena 2023): what was said last is looked up in the prompt and in the output so far, and
what followed it there is the guess. An edit repeats the file it edits, so most of such guesses come true.

The look-up is by text, not by token: under a JSON grammar a file's text is spelt with escapes and is rarely cut into
the same tokens. So the text is indexed both as it stands and JSON-escaped, numbered lines also without their numbers.
How much to guess is a matter of expected gain, from how often guesses came true and what passes cost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

SUFFIXES: Final = (48, 24, 12, 8, 5)
"""Bytes of the output's end that are looked up, longest first."""
FAR_SUFFIX: Final = 8
"""Shorter ones are looked up near the last find only,"""
NEAR_BYTES: Final = 160
"""so many bytes on."""
PRIORS: Final = (0.95, 0.9, 0.8, 0.65, 0.65)
"""How likely the next token of a guess is right, by the length that was found, before anything is known."""
PRIOR_WEIGHT: Final = 6.0
MEMORY: Final = 0.85
"""What was learnt weighs so much less after each guess."""
LENGTHS: Final = (2, 3, 5, 7, 11, 15, 23, 31, 47)
LEAST_GAIN: Final = 1.15
"""A guess has to promise so much more speed than none: measured times are noisy."""
BYTES_A_TOKEN: Final = 8
SEAM: Final = b"\0"
"""Between the prompt's text and the output: no guess goes over it."""
NUMBERED: Final = re.compile(r"^ *\d+(?:\t|: |\| ?)", re.MULTILINE)
"""Line numbers as `cat -n`, grep and most agents' tools print them."""


class LookupDrafter:
    """For one generation. `tokenize` gives the ids of plain text, `seconds` what a pass of so many rows takes (None:
    not known yet), `others` how many rows of other generations share the pass."""

    def __init__(
        self,
        corpus: bytes,
        tokenize: Callable[[str], list[int]],
        seconds: Callable[[int], float | None],
        others: Callable[[], int],
    ) -> None:
        self._corpus = corpus
        self._tokenize = tokenize
        self._seconds = seconds
        self._others = others
        self._right = [prior * PRIOR_WEIGHT for prior in PRIORS]
        self._tried = [PRIOR_WEIGHT for _ in PRIORS]
        self._kind = 0
        self._cursor: int | None = None

    def propose(self, output: bytearray, pending: int, room: int) -> list[int]:
        """At most `room` tokens that may follow `output`, of which `pending` tokens are computed in the same pass."""
        found = self._find(bytes(output))
        if found is None:
            return []
        self._kind, text = found
        chance = self._right[self._kind] / self._tried[self._kind]
        length = best_length(chance, self._seconds, self._others() + pending, room)
        if not length:
            return []
        return self._tokenize(_whole(text[: length * BYTES_A_TOKEN]))[:length]

    def note(self, proposed: int, accepted: int) -> None:
        """So many of the tokens proposed last came true."""
        kind = self._kind
        tried = accepted + (accepted < proposed)
        self._right[kind] = self._right[kind] * MEMORY + accepted
        self._tried[kind] = self._tried[kind] * MEMORY + tried

    def _find(self, output: bytes) -> tuple[int, bytes] | None:
        """What followed the output's end where it stood before: shortly after the last find, else where it stood last.

        A copy with changes goes on near the place it was copied from, so that place is looked at first, and there a few
        bytes are enough to find it again.
        """
        known = self._corpus + SEAM + output
        for kind, size in enumerate(SUFFIXES):
            end = output[-size:]
            if len(end) < size:
                continue
            place = -1
            if self._cursor is not None:
                near = min(self._cursor + NEAR_BYTES, len(known) - 1)
                place = known.find(end, max(0, self._cursor - size), near)
            if place < 0 and size >= FAR_SUFFIX:
                place = known.rfind(end, 0, len(known) - 1)
            if place >= 0:
                self._cursor = place + size
                following = known[self._cursor : self._cursor + LENGTHS[-1] * BYTES_A_TOKEN]
                return kind, following.partition(SEAM)[0]
        return None


def best_length(chance: float, seconds: Callable[[int], float | None], rows: int, room: int) -> int:
    """How many tokens to guess beside `rows` that are computed anyway, each right with `chance` if those before it are;
    0 where none promises LEAST_GAIN. Expected tokens of a pass: 1 + chance + … + chance^length (Leviathan et al. 2023).
    """
    alone = seconds(rows)
    if alone is None:
        return 0
    best, gain = 0, LEAST_GAIN
    for length in (*(length for length in LENGTHS if length < room), min(room, LENGTHS[-1])):
        expected = sum(chance**place for place in range(length + 1))
        cost = (seconds(rows + length) or alone) / alone
        if expected / cost > gain:
            best, gain = length, expected / cost
    return best


def corpus(texts: Iterable[tuple[str, bool]], *, escaped: bool) -> bytes:
    """The text to look up in. Each text comes with whether it is an output of the model, which is quoted as it stands.

    `escaped`: the output will be JSON, so what others wrote appears in it as inside a JSON string.
    """
    parts: list[str] = []
    for text, is_output in texts:
        plain = NUMBERED.sub("", text)
        forms = [text] if is_output or not escaped else []
        if not is_output:
            forms += [_escape(plain)] if escaped else [plain] if plain != text else []
        parts += forms
    return "\n".join(parts).encode("utf-8", "replace")


def _escape(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _whole(data: bytes) -> str:
    """Text of bytes that may begin or end inside a character; only what is whole."""
    return data.decode("utf-8", "ignore")


def tokens_of(tokenize: Callable[[str], Sequence[int]], pieces: Sequence[bytes]) -> Callable[[str], list[int]]:
    """A tokenizer for the middle of a text: some put a blank in front of what they take for its beginning."""
    anchor = tokenize("\n")
    plain = b"".join(pieces[token] for token in anchor) == b"\n"
    if plain:
        return lambda text: list(tokenize(text))
    return lambda text: list(tokenize(f"\n{text}"))[len(anchor) :]
