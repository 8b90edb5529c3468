"""A member that an existing engine serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from caldrix.engine.guard import Guard
from caldrix.engine.jobs import Failed, Finished, Job, Part, Rendered
from caldrix.engine.oneof import check_options
from caldrix.engine.strategy import ChatTemplate
from caldrix.engine.template import Renderer
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import ConstraintKind, Json, Member, OneOf, Rates, StoreInfo, TemplateInfo
from caldrix.remote.detect import Found
from caldrix.remote.dialect import Ask, Means
from caldrix.remote.generate import Line, Prepared, serve
from caldrix.remote.grammar import byte_compiler
from caldrix.remote.runner import Runner
from caldrix.remote.server import Server, ServerFault

OPTIONS_KEPT: Final = 1024
"""Texts of OneOf's options whose ids are remembered."""


@dataclass(frozen=True)
class Abilities:
    """What was found out of a server: the window to use, the constraints it enforces, whether it scores options."""

    window: int
    means: frozenset[Means]
    scores: bool
    notes: tuple[str, ...]

    def constraints(self) -> list[ConstraintKind]:
        """Json is always served: where the server cannot enforce it, answers are checked and asked for again."""
        named: list[tuple[ConstraintKind, bool]] = [
            ("OneOf", self.scores),
            ("Json", True),
            ("Regex", "regex" in self.means),
            ("Lark", "lark" in self.means),
        ]
        return [kind for kind, served in named if served]


class RemoteMember:
    """Joins a server to its renderer, queue and checks. See `caldrix.engine.api.EngineMember`."""

    def __init__(
        self, model: str, server: Server, found: Found, renderer: Renderer, can: Abilities, slots: int
    ) -> None:
        self._model = model
        self._server = server
        self._dialect = found.dialect
        self._renderer = renderer
        self._can = can
        self._option_ids = lru_cache(OPTIONS_KEPT)(found.dialect.tokenize)
        self._guard = Guard()
        self._compiler = byte_compiler()
        self._rates = Rates()
        self._line = Line(server, found.dialect, renderer, can.means, can.window)
        self._runner = Runner(found.model, self._serve, slots)

    def render(self, parts: Sequence[Part]) -> Rendered:
        with self._guard.use():
            try:
                return self._renderer.render(parts)
            except ServerFault as fault:
                raise Refused("engine_failed", f"{fault}.") from fault

    def remember(self, text: str, ids: tuple[int, ...]) -> None:
        self._renderer.remember(text, ids)

    def check(self, job: Job) -> None:
        if not job.ids:
            raise Refused("bad_request", "the context renders to no tokens: add a segment")
        if len(job.ids) >= self._can.window:
            raise Refused(
                "window_exceeded",
                f"the prompt has {len(job.ids)} tokens and this member's window {self._can.window}: shorten or remove "
                "segments",
                {"tokens": len(job.ids), "window": self._can.window},
            )
        with self._guard.use():
            self._prepare(job)

    def submit(self, job: Job) -> None:
        try:
            with self._guard.use():
                prepared = self._prepare(job)
        except Refused as refused:
            job.deliver(Failed(refused.code, refused.message))
        else:
            self._runner.submit(prepared)

    def position(self, job: Job) -> int | None:
        return self._runner.position(job)

    def expected_wait(self, job: Job) -> float | None:
        return None

    def status(self, name: str, *, status: Literal["ready", "unloading"] = "ready") -> Member:
        return Member(
            member=name,
            model=self._model,
            status=status,
            lane="remote",
            threads=0,
            window=self._can.window,
            footprint_bytes=0,
            context_budget_bytes=0,
            constraints=self._can.constraints(),
            template=_template_info(self._renderer.template),
            queue=self._runner.queue(),
            store=StoreInfo(entries=0, bytes=0, hits=0, misses=0, evicted=0),
            rates=self._rates,
            notes=list(self._can.notes),
        )

    def close(self) -> None:
        self._runner.close(self._server.close_streams)
        self._guard.close()
        self._server.close()

    def _prepare(self, job: Job) -> Prepared:
        constraint = job.constraint
        self._dialect.generation(Ask((), 1, job.sampling))  # refuses what this server cannot do
        if constraint is None:
            return Prepared(job)
        if constraint.kind not in self._can.constraints():
            served = ", ".join(self._can.constraints())
            raise Refused(
                "constraint_unsupported",
                f"{self._dialect.name} at {self._server.address.root} cannot enforce a {constraint.kind} constraint, "
                f"and a text cannot be checked in its place; this member serves {served}",
            )
        if isinstance(constraint, OneOf):
            try:
                return Prepared(job, options=check_options(constraint, self._option_ids, job.max_new_tokens))
            except ServerFault as fault:
                raise Refused("engine_failed", f"{fault}.") from fault
        matcher = self._compiler.matcher(constraint)
        return Prepared(job, matcher=None if isinstance(constraint, Json) else matcher)

    async def _serve(self, prepared: Prepared) -> Finished | Failed:
        item = await serve(prepared, self._line)
        if isinstance(item, Finished) and item.finish != "cancelled" and prepared.options is None:
            self._rates = _rates(self._rates, item)
        return item


def _template_info(template: ChatTemplate) -> TemplateInfo:
    info = template.info()
    return info.model_copy(update={"source": "server"}) if template.native else info


def _rates(before: Rates, item: Finished) -> Rates:
    """The speeds of the latest generation; what was too short to time leaves them."""
    computed = item.usage.prompt_tokens - item.usage.recomputed_from
    prefill = 1000 * computed / item.prefill_ms if item.prefill_ms and computed >= 16 else before.prefill_tok_s
    tokens = item.usage.completion_tokens
    decode = 1000 * (tokens - 1) / item.decode_ms if item.decode_ms and tokens > 1 else before.decode_tok_s
    return Rates(prefill_tok_s=prefill, decode_tok_s=decode)
