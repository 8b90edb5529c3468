"""The prefix store: computed rows by the token ids they stand for, in pieces that form a tree. Least recently used
leaves go first, by bytes.

A piece holds the rows of a run of tokens and hangs on the piece before it, perhaps in its middle: what prompts share is
kept once. The ids themselves are compared, never a hash of them: a hit is a hit. Models that keep a state instead of
rows (`piece_rows` 0) are stored whole: a piece then hangs on nothing and serves only prompts that it begins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from caldrix.engine.backend import Saved

Ids = NDArray[np.int32]


def as_ids(tokens: Sequence[int]) -> Ids:
    return np.asarray(tokens, dtype=np.int32)


def common_prefix(a: Ids, b: Ids) -> int:
    """How many leading tokens two sequences share."""
    length = min(a.size, b.size)
    different = np.flatnonzero(a[:length] != b[:length])
    return int(different[0]) if different.size else length


@dataclass(eq=False)
class Piece:
    """Rows `start` to `end`, those before them in `parent`. `data` None: only the shelf holds it."""

    parent: Piece | None
    start: int
    ids: Ids
    key: str
    data: bytes | None
    used: int = 0
    shelved: int = 0
    """Bytes on the shelf."""
    children: list[Piece] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + self.ids.size

    @property
    def size(self) -> int:
        return self.ids.nbytes + (len(self.data) if self.data is not None else 0)


@dataclass(frozen=True, eq=False)
class Header:
    """A piece on the shelf: its and its parent's key, its first row and tokens, its bytes, its rank of use."""

    key: str
    parent: str
    start: int
    ids: Ids
    size: int
    used: int


class Shelf(Protocol):
    """Pieces on disk; see `shelf.py`."""

    budget: int

    def write(self, key: str, parent: str, start: int, ids: Ids, data: bytes) -> int:
        """Keep a piece, later; gives the bytes it will take."""

    def read(self, key: str) -> bytes | None:
        """A piece's rows; None when they are gone or damaged."""

    def drop(self, key: str) -> None: ...

    def headers(self) -> Iterator[Header]:
        """What is kept, parents first."""

    def close(self) -> None:
        """Write what waits."""


Save = Callable[[int, int], bytes]
"""The rows from one position to another, as bytes."""


class PrefixStore:
    """`budget` in bytes of memory; 0 keeps none. `piece_rows` is the longest piece; 0 stores whole sequences."""

    def __init__(self, budget: int, piece_rows: int, shelf: Shelf | None = None) -> None:
        self.budget = budget
        self.evicted = 0
        self.size = 0
        self._piece_rows = piece_rows
        self._shelf = shelf
        self._shelved = 0
        self._clock = 0
        self._roots: list[Piece] = []
        self._pieces: dict[str, Piece] = {}
        if shelf is not None:
            self._open(shelf)

    @property
    def entries(self) -> int:
        return len(self._pieces)

    def longest(self, ids: Ids) -> tuple[list[Piece], int]:
        """The pieces that hold the longest stored prefix of `ids`, first to last, and its length."""
        best: tuple[list[Piece], int] = ([], 0)
        waiting: list[tuple[list[Piece], list[Piece]]] = [([], self._roots)]
        while waiting:
            path, pieces = waiting.pop()
            reach = best[1] if not path else min(path[-1].end, self._match(path[-1], ids))
            for piece in pieces:
                matched = self._match(piece, ids)
                if matched <= piece.start or (path and piece.start > reach):
                    continue
                longer = [*path, piece]
                if matched > best[1]:
                    best = longer, matched
                waiting.append((longer, piece.children))
        return best

    def branching(self, ids: Ids) -> int:
        """How far `ids` go along with any stored sequence, whether that point can be resumed or not."""
        return max((common_prefix(piece.ids, ids) for piece in self._roots), default=0)

    def read(self, path: Sequence[Piece], length: int) -> list[Saved] | None:
        """The first `length` rows of a path, which is then the most recently used.

        None, and the rest of the path forgotten, when some are gone.
        """
        self._touch(path)
        ends = [*(piece.start for piece in path[1:]), length]
        parts = []
        for piece, end in zip(path, ends, strict=True):
            data = piece.data
            if data is None and self._shelf is not None:
                data = self._shelf.read(piece.key)
                self._warm(piece, data)
            if data is None:
                self.forget(piece)
                self._shrink()
                return None
            parts.append(Saved(piece.start, end, data))
        self._shrink()
        return parts

    def put(self, ids: Ids, save: Save, worth: int) -> None:
        """Keep the rows of `ids` that are not stored yet, when they are `worth` saving: so many rows at least."""
        if not self.budget or not ids.size:
            return
        path, length = self.longest(ids)
        self._touch(path)
        if ids.size - length < worth:
            return
        path, length = self._extendable(path, length, ids)
        parent = path[-1] if path and self._piece_rows else None
        for start, end in self._cuts(length if self._piece_rows else 0, ids.size):
            parent = self._add(parent, start, ids[start:end], save(start, end))
            if not self._piece_rows:
                parent = None
        self._shrink()

    def forget(self, piece: Piece) -> None:
        """Drop a piece and all that hang on it."""
        for child in tuple(piece.children):
            self.forget(child)
        (piece.parent.children if piece.parent else self._roots).remove(piece)
        del self._pieces[piece.key]
        self.size -= piece.size
        self._unshelve(piece)

    def close(self) -> None:
        if self._shelf is not None:
            self._shelf.close()

    def _match(self, piece: Piece, ids: Ids) -> int:
        """Up to which row of `ids` this piece goes along; its start when it does not. Its parents are not asked."""
        wanted = ids[piece.start : piece.end]
        shared = common_prefix(piece.ids, wanted)
        if not self._piece_rows and shared < piece.ids.size:
            return 0
        return piece.start + shared

    def _extendable(self, path: list[Piece], length: int, ids: Ids) -> tuple[list[Piece], int]:
        """Without a short last piece that nothing else hangs on: the rows after it join it in one piece."""
        if not path or not self._piece_rows:
            return path, length
        last = path[-1]
        whole = length == last.end < ids.size
        if whole and not last.children and last.end % self._piece_rows:
            self.forget(last)
            return path[:-1], last.start
        return path, length

    def _cuts(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        if not self._piece_rows:
            yield start, end
            return
        while start < end:
            stop = min(end, (start // self._piece_rows + 1) * self._piece_rows)
            yield start, stop
            start = stop

    def _add(self, parent: Piece | None, start: int, ids: Ids, data: bytes) -> Piece:
        above = parent.key if parent else ""
        key = piece_key(above, start, ids)
        if known := self._pieces.get(key):
            self._warm(known, data)
            self._touch([known])
            return known
        piece = Piece(parent, start, ids.copy(), key, data)
        self._hang(piece)
        self._touch([piece])
        if self._shelf is not None:
            piece.shelved = self._shelf.write(key, above, start, piece.ids, data)
            self._shelved += piece.shelved
        return piece

    def _hang(self, piece: Piece) -> None:
        (piece.parent.children if piece.parent else self._roots).append(piece)
        self._pieces[piece.key] = piece
        self.size += piece.size

    def _warm(self, piece: Piece, data: bytes | None) -> None:
        if piece.data is None and data is not None:
            self.size += len(data)
            piece.data = data

    def _touch(self, path: Sequence[Piece]) -> None:
        self._clock += 1
        for piece in path:
            piece.used = self._clock

    def _shrink(self) -> None:
        """Evict the least recently used until both budgets hold: from memory, then from the shelf."""
        while self.size > self.budget:
            piece = self._oldest(lambda piece: piece.data is not None)
            if piece is None:
                break
            self.evicted += 1
            if piece.shelved:
                self.size -= len(piece.data or b"")
                piece.data = None
            else:
                self.forget(piece)
        while self._shelf is not None and self._shelved > self._shelf.budget:
            piece = self._oldest(lambda piece: bool(piece.shelved))
            if piece is None:
                break
            self._evict_shelved(piece)

    def _evict_shelved(self, piece: Piece) -> None:
        if piece.data is None:
            self.forget(piece)
        else:
            self._unshelve(piece)

    def _oldest(self, held: Callable[[Piece], bool]) -> Piece | None:
        """Of the pieces held so whose children are not, the least recently used."""
        leaves = [
            piece for piece in self._pieces.values() if held(piece) and not any(held(child) for child in piece.children)
        ]
        return min(leaves, key=lambda piece: piece.used, default=None)

    def _unshelve(self, piece: Piece) -> None:
        if piece.shelved and self._shelf is not None:
            self._shelf.drop(piece.key)
            self._shelved -= piece.shelved
            piece.shelved = 0

    def _open(self, shelf: Shelf) -> None:
        for header in shelf.headers():
            parent = self._pieces.get(header.parent)
            misplaced = parent is None or not parent.start < header.start <= parent.end
            if (header.parent and misplaced) or header.key != piece_key(header.parent, header.start, header.ids):
                shelf.drop(header.key)
                continue
            piece = Piece(parent, header.start, header.ids, header.key, None, header.used, header.size)
            self._clock = max(self._clock, header.used)
            self._hang(piece)
            self._shelved += header.size
        self._shrink()


def piece_key(parent: str, start: int, ids: Ids) -> str:
    """A name for a piece that is the same in every run: it stands for all ids up to its end."""
    return hashlib.sha256(f"{parent}:{start}:".encode() + ids.astype("<i4").tobytes()).hexdigest()
