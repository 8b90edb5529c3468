"""A pool in memory with scripted outputs: the port and nothing beyond it, its refusals included."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jsonschema

from aerix_server.pool.port import (
    ContextState,
    CountedSegment,
    Edit,
    Generated,
    GenerationItem,
    GenerationOptions,
    MemberState,
    NewSegment,
    PoolFailed,
    Text,
    Waiting,
)
from aerix_server.protocol.events import OptionScore, Timing, Usage

ALL_CONSTRAINTS = frozenset({"OneOf", "Json", "Regex", "Lark"})
CHECKED = ALL_CONSTRAINTS - {"Lark"}
"""Those that a script is held to here. Under the help of `assist` a turn comes as Lark, which is not checked."""
PER_SEGMENT, HEADER = 4, 3

Step = str | PoolFailed | asyncio.Event | Callable[[Sequence[NewSegment]], str]
"""What a generation gives: a text, a failure, an event to wait for without end, or a text made from the prompt."""


def count(text: str) -> int:
    """Tokens of a text here: one for each four bytes begun, at least one."""
    return max(1, -(-len(text.encode()) // 4))


@dataclass
class Context:
    member: str
    segments: list[NewSegment]
    version: int = 1


@dataclass
class ScriptedPool:
    """`script` gives one step for each turn; `route` is what OneOf chooses. `asked` holds each generation's options."""

    script: list[Step]
    scripts: dict[str, list[Step]] = field(default_factory=dict)
    """By a text that stands in the prompt (the first that does): for agents that run at one time."""
    window: int = 8192
    members: tuple[str, ...] = ("main",)
    route: str = "answer"
    probability: float = 0.97
    constraints: frozenset[str] = CHECKED
    asked: list[GenerationOptions] = field(default_factory=list)
    prompts: list[list[NewSegment]] = field(default_factory=list)
    contexts: dict[str, Context] = field(default_factory=dict)
    broken_off: int = 0
    forks: list[tuple[str, str | None]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    _made: int = 0

    async def member(self, name: str) -> MemberState:
        if name not in self.members:
            raise PoolFailed("unknown_member", f"no member {name}")
        return MemberState(name, "scripted", "cpu", self.window, self.constraints, None, None)

    async def create(self, member: str, segments: Sequence[NewSegment]) -> ContextState:
        await asyncio.sleep(0)
        _unique(segments)
        self._made += 1
        name = f"ctx{self._made}"
        self.contexts[name] = Context(member, list(segments))
        return self._state(name)

    async def edit(self, context: str, edits: Sequence[Edit]) -> ContextState:
        await asyncio.sleep(0)
        found = self._find(context)
        segments = list(found.segments)
        for edit in edits:
            _apply(segments, edit)
        _unique(segments)
        found.segments, found.version = segments, found.version + 1
        return self._state(context)

    async def fork(self, context: str, until: str | None = None) -> ContextState:
        segments = self._find(context).segments
        self.forks.append((context, until))
        end = len(segments) if until is None else _at(segments, until) + 1
        return await self.create(self._find(context).member, segments[:end])

    async def show(self, context: str) -> ContextState:
        await asyncio.sleep(0)
        return self._state(context)

    async def drop(self, context: str) -> None:
        self._find(context)
        del self.contexts[context]

    async def generate(self, context: str, options: GenerationOptions) -> AsyncGenerator[GenerationItem, None]:
        found, state = self._find(context), self._state(context)
        self.asked.append(options)
        self.prompts.append(list(found.segments))
        if state.tokens >= self.window:
            raise PoolFailed("window_exceeded", f"the prompt has {state.tokens} tokens, the window {self.window}")
        yield Waiting("queue", 1, 1)
        yield Waiting("prefill", state.tokens, state.tokens)
        if options.constraint and options.constraint["kind"] == "OneOf":
            yield self._choice(options, state.tokens)
            return
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(0)
            text = await self._next(found)
        finally:
            self.running -= 1
        limit = min(options.max_new_tokens, self.window - state.tokens)
        finish, said = ("length", _head(text, limit)) if count(text) > limit else ("stop", text)
        try:
            for start in range(0, len(said), 400):
                await asyncio.sleep(0)
                yield Text(said[start : start + 400], count(said[start : start + 400]))
        except GeneratorExit:
            self.broken_off += 1
            raise
        yield self._done(found, options, finish, said, state.tokens)

    async def aclose(self) -> None:
        self.contexts.clear()

    async def _next(self, found: Context) -> str:
        texts = [segment.text for segment in found.segments if segment.role == "user"]
        named = (script for mark, script in self.scripts.items() if any(mark in text for text in texts))
        script = next(named, self.script)
        assert script, f"the script has no step left for this turn: {texts[-1]}"
        step = script.pop(0)
        if isinstance(step, PoolFailed):
            raise step
        if isinstance(step, asyncio.Event):
            try:
                await step.wait()
            except asyncio.CancelledError:
                self.broken_off += 1
                raise
            return await self._next(found)
        return step if isinstance(step, str) else step(found.segments)

    def _choice(self, options: GenerationOptions, prompt: int) -> Generated:
        assert options.constraint is not None
        names: list[str] = options.constraint["options"]
        rest = (1 - self.probability) / (len(names) - 1)
        scores = tuple(
            OptionScore(option=name, logprob=-1.0, probability=self.probability if name == self.route else rest)
            for name in names
        )
        return Generated("stop", self.route, _usage(prompt, 1), _TIMING, choice=self.route, scores=scores)

    def _done(self, found: Context, options: GenerationOptions, finish: Any, text: str, prompt: int) -> Generated:
        constrained = options.constraint is not None and options.constraint["kind"] == "Json"
        if constrained and finish == "stop":
            assert options.constraint is not None
            _could_be_decoded(text, options.constraint["schema"])
        done = Generated(finish, text, _usage(prompt, count(text)), _TIMING)
        if options.append_id is None or (constrained and finish == "length"):
            return done
        segment = NewSegment(options.append_id, "assistant", text, options.append_pinned)
        _unique([*found.segments, segment])
        found.segments.append(segment)
        found.version += 1
        counted = CountedSegment(segment.id, "assistant", segment.pinned, count(text))
        return replace(done, appended=counted, version=found.version)

    def _find(self, context: str) -> Context:
        if context not in self.contexts:
            raise PoolFailed("unknown_context", f"no context {context}")
        return self.contexts[context]

    def _state(self, name: str) -> ContextState:
        found = self._find(name)
        counted = tuple(CountedSegment(item.id, item.role, item.pinned, count(item.text)) for item in found.segments)
        tokens = sum(item.tokens + PER_SEGMENT for item in counted) + HEADER
        return ContextState(name, found.member, found.version, self.window, tokens, counted)


_TIMING = Timing(queued_ms=0, prefill_ms=1, decode_ms=1)


def _usage(prompt: int, completion: int) -> Usage:
    return Usage(prompt_tokens=prompt, completion_tokens=completion)


def _could_be_decoded(text: str, schema: dict[str, Any]) -> None:
    """A constrained member gives nothing outside its schema, so a script must not either."""
    jsonschema.validate(json.loads(text), schema)


def _head(text: str, tokens: int) -> str:
    return text.encode()[: tokens * 4].decode("utf-8", "ignore")


def _at(segments: Sequence[NewSegment], id_: str) -> int:
    for at, segment in enumerate(segments):
        if segment.id == id_:
            return at
    raise PoolFailed("unknown_segment", f"no segment {id_}")


def _apply(segments: list[NewSegment], edit: Edit) -> None:
    if edit.op == "append":
        assert edit.segment is not None
        segments.append(edit.segment)
        return
    assert edit.id is not None
    at = _at(segments, edit.id)
    if edit.op == "remove":
        del segments[at]
    elif edit.op == "replace":
        assert edit.text is not None
        segments[at] = replace(segments[at], text=edit.text)
    else:
        assert edit.pinned is not None
        segments[at] = replace(segments[at], pinned=edit.pinned)


def _unique(segments: Sequence[NewSegment]) -> None:
    ids = [segment.id for segment in segments]
    for id_ in ids:
        if ids.count(id_) > 1:
            raise PoolFailed("duplicate_segment", f"the segment {id_} stands twice")
    for segment in segments:
        segment.text.encode("utf-8")  # what a frame cannot carry fails here as it would there
