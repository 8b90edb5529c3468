"""A loaded model as the daemon uses it: rendering, checking, the queue, its status. `load_member` opens a real one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from caldrix.engine.api import LoadProgress, ServingFlags
from caldrix.engine.backend import Backend, EngineFailed
from caldrix.engine.constrain import Compiler
from caldrix.engine.generate import Prepared, generate
from caldrix.engine.guard import Guard
from caldrix.engine.jobs import Failed, Item, Job, Part, Rendered
from caldrix.engine.llama import BRANCH_CELLS, LlamaBackend, OpenOptions
from caldrix.engine.llama_model import LlamaModel
from caldrix.engine.oneof import check_options
from caldrix.engine.prefix import PrefixStore
from caldrix.engine.probe import probe
from caldrix.engine.rows import Rows
from caldrix.engine.strategy import open_template
from caldrix.engine.template import Renderer
from caldrix.engine.worker import Worker
from caldrix.models.fit import choose_window, default_budget, footprint
from caldrix.models.machine import memory_limit, usable_cores
from caldrix.models.refs import resolve
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Member, OneOf, Rates, StoreInfo


class LoadedMember:
    """Joins a backend to its store, renderer, compiler and thread. See `caldrix.engine.api.EngineMember`."""

    def __init__(self, backend: Backend, context_budget: int) -> None:
        self._backend = backend
        self._budget = context_budget
        vocabulary = backend.vocabulary
        self._template, note = open_template(backend.facts.template, vocabulary.bos_text, vocabulary.eos_text)
        self._notes = [*backend.facts.notes, *([note] if note else [])]
        self._renderer = Renderer(vocabulary, backend.tokenize, self._template)
        self._guard = Guard()
        self._compiler = Compiler(backend.matcher_tokenizer(), self._guard)
        self._rows = Rows(backend, PrefixStore(context_budget))
        self._worker = Worker(backend.facts.name, self._drive)

    def render(self, parts: Sequence[Part]) -> Rendered:
        with self._guard.use():
            return self._renderer.render(parts)

    def remember(self, text: str, ids: tuple[int, ...]) -> None:
        self._renderer.remember(text, ids)

    def check(self, job: Job) -> None:
        window = self._backend.facts.window
        if not job.ids:
            raise Refused("bad_request", "the context renders to no tokens: add a segment")
        if len(job.ids) >= window:
            raise Refused(
                "window_exceeded",
                f"the prompt has {len(job.ids)} tokens and this member's window {window}: shorten or remove segments",
                {"tokens": len(job.ids), "window": window},
            )
        self._prepare(job)

    def submit(self, job: Job) -> None:
        try:
            prepared = self._prepare(job)
        except Refused as refused:
            job.deliver(Failed(refused.code, refused.message))
        else:
            self._worker.submit(prepared)

    def position(self, job: Job) -> int | None:
        return self._worker.position(job)

    def status(self, name: str, *, status: Literal["ready", "unloading"] = "ready") -> Member:
        facts, rows = self._backend.facts, self._rows
        return Member(
            member=name,
            model=facts.name,
            status=status,
            lane=facts.lane,
            threads=facts.threads,
            window=facts.window,
            footprint_bytes=facts.footprint_bytes,
            context_budget_bytes=self._budget,
            constraints=["OneOf", "Json", "Regex", "Lark"],
            template=self._template.info(),
            queue=self._worker.queue(),
            store=StoreInfo(
                entries=rows.store.entries,
                bytes=rows.store.size,
                hits=rows.hits,
                misses=rows.misses,
                evicted=rows.store.evicted,
            ),
            rates=Rates(prefill_tok_s=rows.rates.prefill, decode_tok_s=rows.rates.decode),
            notes=self._notes,
        )

    def close(self) -> None:
        self._worker.close()
        self._guard.close()
        self._backend.close()

    def _prepare(self, job: Job) -> Prepared:
        constraint = job.constraint
        if constraint is None:
            return Prepared(job)
        with self._guard.use():
            if isinstance(constraint, OneOf):
                return Prepared(job, options=check_options(constraint, self._backend.tokenize, job.max_new_tokens))
            return Prepared(job, matcher=self._compiler.matcher(constraint))

    def _drive(self, prepared: Prepared) -> Iterator[Item]:
        return generate(prepared, self._rows, self._backend.vocabulary)


def load_member(reference: str, flags: ServingFlags, progress: LoadProgress, used_bytes: int) -> LoadedMember:
    """Open a model: resolve → precheck in a child → fit → load. See `caldrix.engine.api.Loader`."""
    path = resolve(reference)
    threads = flags.threads or usable_cores()
    limit = flags.memory_limit or memory_limit()
    budget = default_budget(limit) if flags.context_budget is None else flags.context_budget
    size = path.stat().st_size
    _check_memory(reference, size + budget, used_bytes, limit)  # before anything of it is read
    progress("precheck", 0, 1)
    verdict = probe(path, threads)
    progress("precheck", 1, 1)
    progress("load", 0, size)
    try:
        model = LlamaModel(path, repack=verdict.repack)
        options = OpenOptions(threads, choose_window(model.shape, flags.window), verdict.repack)
        try:
            _check_memory(reference, footprint(model.shape, options.window + BRANCH_CELLS) + budget, used_bytes, limit)
            backend = LlamaBackend(model, reference, options, verdict.notes)
        except BaseException:
            model.close()
            raise
    except EngineFailed as error:
        raise Refused("model_refused", str(error)) from error
    try:
        member = LoadedMember(backend, budget)
    except BaseException:
        backend.close()
        raise
    progress("load", size, size)
    return member


def _check_memory(reference: str, needed: int, used: int, limit: int) -> None:
    if used + needed > limit:
        raise Refused(
            "memory",
            f"{reference} needs {_gib(needed)} with its context budget, and {_gib(max(0, limit - used))} of the "
            f"{_gib(limit)} limit are free: unload a member, or lower --window or --context-budget",
            {"needed_bytes": needed, "available_bytes": max(0, limit - used), "limit_bytes": limit},
        )


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
