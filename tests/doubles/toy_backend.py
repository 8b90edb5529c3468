"""A backend with a byte vocabulary and scripted logits, for the real engine, daemon, socket and frames.

It can do no more than a real one: it sees token ids, gives logits, and its rows can be cut, saved and loaded. What
it wants to say is a script: the n-th generation wants the n-th reply, byte by byte, then an end of turn. A constraint
may force it elsewhere; it then ends its turn as soon as it may.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from llguidance import LLTokenizer
from llguidance._tokenizer import TokenizerWrapper

from caldrix.engine.api import LoadProgress, ServingFlags
from caldrix.engine.backend import MAX_OUTPUT_ROWS, EngineFailed, Logits, ModelFacts, Vocabulary
from caldrix.engine.member import LoadedMember
from caldrix.protocol.errors import Refused

QUOTE, START, END, PAD, WORD = 34, 256, 257, 258, 259
SIZE = 260
LONG_WORD = b"investig"
"""The one token of several bytes: without it the longest route would not fit routing's eight tokens."""
HEADER = [START, *b"assistant\n"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCABULARY = Vocabulary(
    pieces=(*(bytes([byte]) for byte in range(256)), b"<|im_start|>", b"<|im_end|>", b"<|pad|>", LONG_WORD),
    markup={"<|im_start|>": START, "<|im_end|>": END, "<|pad|>": PAD},
    user_defined=frozenset(),
    control=frozenset({START, END, PAD}),
    end_of_generation=frozenset({END}),
    strip_left=frozenset(),
    strip_right=frozenset(),
    bos=None,
    bos_text="",
    eos_text="<|im_end|>",
    add_bos=False,
)


@dataclass
class Script:
    """`replies` in the order of the generations, the last one again and again. `pace_s` is what a pass takes."""

    replies: list[str]
    window: int = 100_000
    pace_s: float = 0.0
    asked: int = field(default=0, init=False)

    def next_reply(self) -> bytes:
        reply = self.replies[min(self.asked, len(self.replies) - 1)]
        self.asked += 1
        return reply.encode()


class ToyBackend:
    vocabulary = VOCABULARY

    def __init__(self, script: Script, name: str = "toy", *, can_cut: bool = True) -> None:
        self.facts = ModelFacts(name, "toy", 1, script.window, 1 << 20, TEMPLATE)
        self.script = script
        self.failures = 0
        """How many of the next passes fail, as a native engine may."""
        self.broken_snapshots = False
        self._can_cut = can_cut
        self._rows: list[int] = []
        self._reply = b""

    def tokenize(self, text: str) -> list[int]:
        return _split(text.encode("utf-8", "replace"))

    def matcher_tokenizer(self) -> LLTokenizer:
        class Wrapped:
            eos_token_id = END
            bos_token_id = None
            tokens = VOCABULARY.pieces
            special_token_ids = (START, END, PAD)

            def __call__(self, text: bytes | str) -> list[int]:
                return _split(text if isinstance(text, bytes) else text.encode())

        return LLTokenizer(TokenizerWrapper(Wrapped()))

    def eval(self, tokens: Sequence[int], start: int, want: Literal["none", "last", "all"]) -> Logits:
        if start != len(self._rows) or start + len(tokens) > self.script.window:
            raise EngineFailed(f"rows {start} to {start + len(tokens)} do not follow {len(self._rows)}")
        self._pass()
        lines = []
        for place, token in enumerate(tokens):
            self._rows.append(token)
            if want == "all" or (want == "last" and place == len(tokens) - 1):
                lines.append(self._logits(self._rows))
        return np.array(lines, dtype=np.float32).reshape(len(lines), SIZE)

    def branches(self, branches: Sequence[Sequence[int]], start: int) -> Iterator[tuple[int, Logits]]:
        """A long branch comes in pieces, as from a real one."""
        for place, branch in enumerate(branches):
            assert start == len(self._rows)
            self._pass()
            for begin in range(0, len(branch), MAX_OUTPUT_ROWS):
                ends = range(begin + 1, min(begin + MAX_OUTPUT_ROWS, len(branch)) + 1)
                yield place, np.array([self._logits(self._rows + list(branch[:end])) for end in ends], np.float32)

    def _pass(self) -> None:
        if self.script.pace_s:
            threading.Event().wait(self.script.pace_s)
        if self.failures:
            self.failures -= 1
            raise EngineFailed("the double was told to fail")

    def keep(self, rows: int) -> bool:
        if not self._can_cut and rows < len(self._rows):
            return False
        del self._rows[rows:]
        return True

    def clear(self) -> None:
        self._rows = []

    def save(self) -> bytes:
        return json.dumps(self._rows).encode()

    def load(self, snapshot: bytes) -> None:
        self.clear()
        if self.broken_snapshots:
            raise EngineFailed("the double was told to lose its snapshots")
        self._rows = json.loads(snapshot)

    def close(self) -> None:
        self._rows = []

    def _logits(self, rows: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        """Near certainty of the byte the script wants next; a small slope elsewhere, so that no two are equal."""
        said = _after_header(rows)
        if said == b"":
            self._reply = self.script.next_reply()
        logits = np.linspace(0.0, 0.1, SIZE, dtype=np.float32)
        logits[END], logits[QUOTE] = 5.0, 4.0
        if said is not None and self._reply.startswith(said):
            wanted = END if len(said) == len(self._reply) else self._reply[len(said)]
            logits[wanted] = 20.0
        return logits


def _split(text: bytes) -> list[int]:
    """Bytes are tokens, but for the long word."""
    tokens: list[int] = []
    for number, piece in enumerate(text.split(LONG_WORD)):
        tokens += [WORD] * (number > 0) + list(piece)
    return tokens


def _after_header(rows: Sequence[int]) -> bytes | None:
    """What stands after the last turn's header, when that is an assistant's."""
    starts = [place for place, token in enumerate(rows) if token == START]
    if not starts or list(rows[starts[-1] : starts[-1] + len(HEADER)]) != HEADER:
        return None
    return b"".join(VOCABULARY.pieces[token] for token in rows[starts[-1] + len(HEADER) :])


def load_toy(reference: str, flags: ServingFlags, progress: LoadProgress, used_bytes: int) -> LoadedMember:
    """A loader: the reference is a path to a script as JSON ({"replies": […], "window": …, "pace_s": …})."""
    path = Path(reference)
    if not path.is_file():
        raise Refused("model_not_found", f"there is no script {reference}")
    progress("load", 0, 1)
    script = Script(**json.loads(path.read_text()))
    if flags.window:
        script.window = flags.window
    return LoadedMember(
        ToyBackend(script, reference), flags.context_budget if flags.context_budget is not None else 1 << 26
    )
