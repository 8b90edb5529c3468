"""A backend with a byte vocabulary and scripted logits, for the real engine, daemon, socket and frames.

It can do no more than a real one: it sees token ids, gives logits, and its rows can be cut, saved and loaded. What
it wants to say is a script: the n-th generation wants the n-th reply, byte by byte, then an end of turn. A constraint
may force it elsewhere; it then ends its turn as soon as it may.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from llguidance import LLTokenizer
from llguidance._tokenizer import TokenizerWrapper

from caldrix.engine.api import LoadProgress, ServingFlags
from caldrix.engine.backend import (
    MAX_OUTPUT_ROWS,
    MAX_PASS_ROWS,
    EngineFailed,
    Logits,
    ModelFacts,
    NoRoom,
    Row,
    Saved,
    Vocabulary,
)
from caldrix.engine.cells import Cells
from caldrix.engine.member import LoadedMember, Serving
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

    def __init__(
        self, script: Script, name: str = "toy", *, can_cut: bool = True, cells: int = 0, sequences: int = 24
    ) -> None:
        """`cells` 0: as many as the window has, and some for branches."""
        cells = cells or script.window + MAX_OUTPUT_ROWS
        rows = 16 if can_cut else 0
        self.facts = ModelFacts(name, "toy", 1, script.window, cells, sequences, rows, 4, 1 << 20, TEMPLATE)
        self.script = script
        self.failures = 0
        """How many of the next passes fail, as a native engine may."""
        self.broken_snapshots = False
        self.passes: list[list[Row]] = []
        self._can_cut = can_cut
        self._cells = Cells(cells)
        self._rows: dict[int, list[int]] = {}
        self._replies: dict[tuple[int, ...], bytes] = {}

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

    def decode(self, rows: Sequence[Row]) -> Logits:
        assert 0 < len(rows) <= MAX_PASS_ROWS
        if len(rows) > self._cells.free:
            raise NoRoom(f"{len(rows)} rows do not fit")
        self.passes.append(list(rows))
        self._pass()
        lines = []
        for token, position, sequence, wanted in rows:
            held = self._rows.setdefault(sequence, [])
            if position != len(held) or not 0 <= sequence < self.facts.sequences:
                raise EngineFailed(f"row {position} does not follow {len(held)}")
            held.append(token)
            self._cells.take(sequence, 1)
            if wanted:
                lines.append(self._logits(held))
        return np.array(lines, dtype=np.float32).reshape(len(lines), SIZE)

    def copy(self, source: int, target: int) -> None:
        assert not self._rows.get(target)
        self._rows[target] = list(self._rows.get(source, []))
        self._cells.share(source, target)

    def keep(self, sequence: int, rows: int) -> bool:
        held = self._rows.setdefault(sequence, [])
        if not self._can_cut and 0 < rows < len(held):
            return False
        del held[rows:]
        self._cells.keep(sequence, rows)
        return True

    def clear(self, sequence: int) -> None:
        self._rows[sequence] = []
        self._cells.keep(sequence, 0)

    def save(self, sequence: int, start: int, end: int) -> bytes:
        held = self._rows[sequence]
        return json.dumps(held[start:end] if self._can_cut else held).encode()

    def load(self, sequence: int, parts: Sequence[Saved]) -> None:
        assert not self._rows.get(sequence)
        if self.broken_snapshots:
            raise EngineFailed("the double was told to lose its snapshots")
        held: list[int] = []
        for start, end, data in parts:
            assert start == len(held)
            held += json.loads(data)[: end - start]
        self._rows[sequence] = held
        self._cells.take(sequence, len(held))

    def set_threads(self, threads: int) -> None:
        """Nothing here is computed by threads."""

    def close(self) -> None:
        self._rows = {}

    def _pass(self) -> None:
        if self.script.pace_s:
            threading.Event().wait(self.script.pace_s)
        if self.failures:
            self.failures -= 1
            raise EngineFailed("the double was told to fail")

    def _logits(self, rows: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        """Near certainty of the byte the script wants next; a small slope elsewhere, so that no two are equal."""
        prompt, said = _after_header(rows)
        if said == b"":
            self._replies[prompt] = self.script.next_reply()
        logits = np.linspace(0.0, 0.1, SIZE, dtype=np.float32)
        logits[END], logits[QUOTE] = 5.0, 4.0
        reply = self._replies.get(prompt, b"")
        if said is not None and reply.startswith(said):
            wanted = END if len(said) == len(reply) else reply[len(said)]
            logits[wanted] = 20.0
        return logits


def _split(text: bytes) -> list[int]:
    """Bytes are tokens, but for the long word."""
    tokens: list[int] = []
    for number, piece in enumerate(text.split(LONG_WORD)):
        tokens += [WORD] * (number > 0) + list(piece)
    return tokens


def _after_header(rows: Sequence[int]) -> tuple[tuple[int, ...], bytes | None]:
    """The prompt, and what stands after the last turn's header, when that is an assistant's."""
    starts = [place for place, token in enumerate(rows) if token == START]
    if not starts or list(rows[starts[-1] : starts[-1] + len(HEADER)]) != HEADER:
        return (), None
    end = starts[-1] + len(HEADER)
    return tuple(rows[:end]), b"".join(VOCABULARY.pieces[token] for token in rows[end:])


def load_toy(reference: str, flags: ServingFlags, progress: LoadProgress, used_bytes: int) -> LoadedMember:
    """A loader: the reference is a path to a script as JSON ({"replies": […], "window": …, "pace_s": …})."""
    path = Path(reference)
    if not path.is_file():
        raise Refused("model_not_found", f"there is no script {reference}")
    progress("load", 0, 1)
    script = Script(**json.loads(path.read_text()))
    if flags.window:
        script.window = flags.window
    budget = flags.context_budget if flags.context_budget is not None else 1 << 26
    return LoadedMember(ToyBackend(script, reference), Serving(budget, flags.max_batch))
