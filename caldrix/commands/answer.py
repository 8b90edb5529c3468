"""A conversation on one context: each prompt becomes a user's segment, each answer an assistant's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from caldrix.client.client import GenerationFrame, PoolClient
from caldrix.protocol.errors import CaldrixError, Refused
from caldrix.protocol.messages import Append, AppendEdit, Delta, Done, Edit, Json, RemoveEdit, Segment


@dataclass(frozen=True)
class Question:
    """How each prompt is answered."""

    max_new_tokens: int
    constraint: Json | None


@dataclass(frozen=True)
class Answer:
    """`first_ms` is when the first text came, in milliseconds after the question; None where none came."""

    done: Done
    first_ms: int | None


class Conversation:
    """What was said so far, kept here too, so that it can be saved and put into a new context."""

    def __init__(self, client: PoolClient, member: str, question: Question) -> None:
        self._client = client
        self._member = member
        self._question = question
        self._context: str | None = None
        self._turn = 0
        self._partial = ""
        self.system: str | None = None
        self.turns: list[Segment] = []

    async def ask(self, text: str, show: Callable[[GenerationFrame], None]) -> Answer:
        """Append the prompt and show the answer's frames as they come.

        Raises CaldrixError, and then the prompt was taken back. Left by a cancel, it has to be followed by `settle`.
        """
        self._turn += 1
        self._partial = ""
        await self._append(Segment(id=f"u{self._turn}", role="user", text=text))
        try:
            answer = await self._generate(show)
        except Refused:
            await self._take_back()
            raise
        if answer.done.segment:
            self.turns.append(self._said(answer.done.text))
        else:
            await self.settle()
        return answer

    async def settle(self) -> None:
        """After an answer that was stopped: keep what it said so far, or take the prompt back where that is nothing."""
        if not self.turns or self.turns[-1].role != "user":
            return
        if not self._partial.strip():
            await self._take_back()
            return
        self.turns.append(self._said(self._partial))
        await self._edit(AppendEdit(op="append", segment=self.turns[-1]))

    async def restart(self, *, forget: bool) -> None:
        """Begin a new context at the next question, with what was said so far unless it is to be forgotten."""
        context, self._context = self._context, None
        if forget:
            self.turns = []
        if context:
            with contextlib.suppress(CaldrixError):
                await self._client.drop(context)

    async def _append(self, segment: Segment) -> None:
        """Raises CaldrixError, and then the segment is not there."""
        if self._context:
            await self._client.edit(self._context, [AppendEdit(op="append", segment=segment)])
        else:
            system = [Segment(id="s", role="system", text=self.system)] if self.system else []
            self._context = (await self._client.create(self._member, [*system, *self.turns, segment])).context
        self.turns.append(segment)

    async def _generate(self, show: Callable[[GenerationFrame], None]) -> Answer:
        assert self._context is not None
        started, first_ms = time.monotonic(), None
        question, append = self._question, Append(id=f"a{self._turn}")
        frames = self._client.generate(
            self._context, question.max_new_tokens, constraint=question.constraint, append=append
        )
        async with contextlib.aclosing(frames):
            async for frame in frames:
                if isinstance(frame, Delta) and frame.text:
                    first_ms = int(1000 * (time.monotonic() - started)) if first_ms is None else first_ms
                    self._partial += frame.text
                show(frame)
                if isinstance(frame, Done):
                    return Answer(frame, first_ms)
        raise AssertionError("a generation ends with Done or an exception")

    async def _take_back(self) -> None:
        await self._edit(RemoveEdit(op="remove", id=self.turns.pop().id))

    async def _edit(self, edit: Edit) -> None:
        """A context that refuses is left for a new one, which the next question fills from what was said."""
        try:
            if self._context:
                await self._client.edit(self._context, [edit])
        except CaldrixError:
            self._context = None

    def _said(self, text: str) -> Segment:
        return Segment(id=f"a{self._turn}", role="assistant", text=text)
