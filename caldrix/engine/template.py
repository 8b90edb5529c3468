"""Segments to token ids through the model's own chat template, with text that can never become a control token.

In segment text every control token's string is replaced by a private-use character before the template runs. The
rendering is then cut at the control tokens that the template itself wrote; each plain run between them, template and
segment text together, is tokenised whole with the original text put back. So the ids of ordinary text equal those of
the whole rendered prompt, and a file that contains `<|im_end|>` stays a file. Outputs keep the ids they were generated
with: they too travel through the template as one private-use character.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from caldrix.engine.backend import Vocabulary
from caldrix.engine.jobs import Part, Rendered
from caldrix.engine.strategy import ChatTemplate, Message
from caldrix.protocol.errors import Refused

CACHE_BYTES = 64 << 20
ID_BYTES = 40
"""An id as a Python integer, and its place in a tuple."""
_PRIVATE = re.compile("[\U000f0000-\U000ffffd]")


@dataclass(frozen=True)
class _Hidden:
    """What a private-use character stands for: markup text, or an output's ids."""

    text: str = ""
    ids: tuple[int, ...] | None = None


class _Marks:
    """Private-use characters that stand in none of `texts`: one for each markup text, and one for each output."""

    def __init__(self, texts: Sequence[str]) -> None:
        used = {character for text in texts for character in _PRIVATE.findall(text)}
        self._free = (mark for mark in map(chr, range(0xF0000, 0xFFFFE)) if mark not in used)
        self._of_text: dict[str, str] = {}
        self.hidden: dict[str, _Hidden] = {}

    def of_text(self, text: str) -> str:
        if text not in self._of_text:
            self._of_text[text] = self._take(_Hidden(text=text))
        return self._of_text[text]

    def of_output(self, ids: tuple[int, ...]) -> str:
        return self._take(_Hidden(ids=ids))

    def _take(self, what: _Hidden) -> str:
        mark = next(self._free, None)
        if mark is None:
            raise Refused("bad_request", "the context has too many outputs and private-use characters: remove segments")
        self.hidden[mark] = what
        return mark


class Cache:
    """The ids of texts within CACHE_BYTES, least recently used first out. May be used from any thread."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._lock = threading.Lock()
        self.size = 0

    def get(self, text: str) -> tuple[int, ...] | None:
        with self._lock:
            ids = self._ids.get(text)
            if ids is not None:
                self._ids.move_to_end(text)
            return ids

    def put(self, text: str, ids: tuple[int, ...]) -> None:
        with self._lock:
            if text in self._ids:
                self.size -= _cost(text, self._ids.pop(text))
            self._ids[text] = ids
            self.size += _cost(text, ids)
            while self.size > CACHE_BYTES:
                self.size -= _cost(*self._ids.popitem(last=False))


def _cost(text: str, ids: tuple[int, ...]) -> int:
    """Bytes of memory."""
    return sys.getsizeof(text) + ID_BYTES * len(ids)


@dataclass
class Renderer:
    """Renders prompts for one member; may be called from any thread."""

    vocabulary: Vocabulary
    tokenize: Callable[[str], list[int]]
    template: ChatTemplate
    _runs: Cache = field(default_factory=Cache)
    _outputs: Cache = field(default_factory=Cache)

    def __post_init__(self) -> None:
        # The longest first: one token's text may begin another's.
        texts = sorted(self.vocabulary.markup, key=len, reverse=True)
        self._markup = re.compile("|".join(map(re.escape, texts))) if texts else re.compile("(?!)")

    def remember(self, text: str, ids: tuple[int, ...]) -> None:
        """From now on an assistant part of this text is rendered with these ids."""
        self._outputs.put(text, ids)

    def render(self, parts: Sequence[Part]) -> Rendered:
        """The whole prompt with its generation header. Raises Refused("bad_request") when the template refuses it."""
        known = [self._known_ids(part) for part in parts]
        marks = _Marks([part.text for part in parts] + [self.template.source])
        messages = [
            Message(part.role, self._hide(part.text, own, marks)) for part, own in zip(parts, known, strict=True)
        ]
        try:
            rendering = self.template.render(messages)
        except Exception as error:
            raise Refused("bad_request", f"the model's chat template refuses this context: {error}") from error
        ids = tuple(self._prompt_ids(rendering, marks.hidden))
        counts = tuple(
            len(self._text_ids(part.text)) if own is None else len(own) for part, own in zip(parts, known, strict=True)
        )
        return Rendered(ids, counts)

    def _known_ids(self, part: Part) -> tuple[int, ...] | None:
        if part.ids is not None or part.role != "assistant":
            return part.ids
        return self._outputs.get(part.text)

    def _hide(self, text: str, ids: tuple[int, ...] | None, marks: _Marks) -> str:
        if ids is not None:
            return marks.of_output(ids)
        return self._markup.sub(lambda match: marks.of_text(match[0]), text)

    def _prompt_ids(self, rendering: str, hidden: dict[str, _Hidden]) -> Iterator[int]:
        vocabulary = self.vocabulary
        pieces = self._pieces(rendering, hidden)
        if vocabulary.add_bos and vocabulary.bos is not None and pieces[:1] != [vocabulary.bos]:
            yield vocabulary.bos
        for place, piece in enumerate(pieces):
            if isinstance(piece, int):
                yield piece
            elif isinstance(piece, tuple):
                yield from piece
            else:
                run = self._strip(piece, pieces[max(0, place - 1) : place], pieces[place + 1 : place + 2])
                yield from self._run_ids(run, hidden)

    def _pieces(self, rendering: str, hidden: dict[str, _Hidden]) -> list[int | str | tuple[int, ...]]:
        """The rendering as control tokens (int), outputs (ids) and the plain runs between them."""
        pieces: list[int | str | tuple[int, ...]] = []
        outputs = [mark for mark, what in hidden.items() if what.ids is not None]
        cut = re.compile("|".join([self._markup.pattern, *outputs])) if outputs else self._markup
        end = 0
        for match in cut.finditer(rendering):
            if match.start() > end:
                pieces.append(rendering[end : match.start()])
            what = hidden.get(match[0])
            pieces.append(self.vocabulary.markup[match[0]] if what is None else what.ids or ())
            end = match.end()
        if end < len(rendering):
            pieces.append(rendering[end:])
        return pieces

    def _strip(self, run: str, before: Sequence[object], after: Sequence[object]) -> str:
        """Some tokens take the blanks beside them, as llama.cpp does when it parses a whole prompt."""
        if before and before[0] in self.vocabulary.strip_right:
            run = run.lstrip()
        if after and after[0] in self.vocabulary.strip_left:
            run = run.rstrip()
        return run

    def _run_ids(self, run: str, hidden: dict[str, _Hidden]) -> tuple[int, ...]:
        def original(match: re.Match[str]) -> str:
            return hidden[match[0]].text if match[0] in hidden else match[0]

        return self._text_ids(_PRIVATE.sub(original, run))

    def _text_ids(self, text: str) -> tuple[int, ...]:
        """Ids of plain text. A user-defined token's text is cut after its first character, since llama.cpp finds such
        tokens even where it is told not to parse special ones."""
        ids = self._runs.get(text)
        if ids is None:
            ids = tuple(token for piece in self._without_user_defined(text) for token in self.tokenize(piece))
            self._runs.put(text, ids)
        return ids

    def _without_user_defined(self, text: str) -> Iterator[str]:
        start = 0
        for match in self._markup.finditer(text):
            if self.vocabulary.markup[match[0]] in self.vocabulary.user_defined:
                yield text[start : match.start() + 1]
                start = match.start() + 1
        if start < len(text):
            yield text[start:]
