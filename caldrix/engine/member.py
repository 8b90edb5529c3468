"""A loaded model as the daemon uses it: rendering, checking, the queue, its status. `load_member` opens a real one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from caldrix.engine.api import DEFAULT_MAX_BATCH, LoadProgress, ServingFlags
from caldrix.engine.backend import Backend, EngineFailed
from caldrix.engine.batch import Batch
from caldrix.engine.constrain import Compiler
from caldrix.engine.digest import model_digest
from caldrix.engine.draft import LookupDrafter, corpus, tokens_of
from caldrix.engine.generate import Generation, Prepared
from caldrix.engine.guard import Guard
from caldrix.engine.jobs import Failed, Job, Part, Rendered
from caldrix.engine.llama import LlamaBackend, OpenOptions, plan_cache
from caldrix.engine.llama_model import LlamaModel
from caldrix.engine.measure import measure
from caldrix.engine.oneof import check_options
from caldrix.engine.pace import thread_counts
from caldrix.engine.prefix import PrefixStore, Shelf
from caldrix.engine.probe import library_build, probe
from caldrix.engine.sequences import Sequences
from caldrix.engine.shelf import DiskShelf, identity
from caldrix.engine.strategy import open_template
from caldrix.engine.template import Renderer
from caldrix.engine.worker import Worker
from caldrix.models.fit import FootprintUnknown, choose_window, default_budget, footprint
from caldrix.models.machine import memory_limit, usable_cores
from caldrix.models.obtain import obtain
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Json, Member, OneOf, Rates, StoreInfo

ALONE: Final = "nothing can be loaded beside this member, whose memory is not known"


@dataclass(frozen=True)
class Serving:
    """How a member serves: `budget` in bytes for stored prefixes, `batch` generations at once, `threads` to choose
    from."""

    budget: int
    batch: int = DEFAULT_MAX_BATCH
    threads: tuple[int, ...] = (1,)
    shelf: Shelf | None = None
    notes: tuple[str, ...] = ()


class LoadedMember:
    """Joins a backend to its store, renderer, compiler and thread. See `caldrix.engine.api.EngineMember`."""

    def __init__(self, backend: Backend, serving: Serving) -> None:
        self._backend = backend
        self._budget = serving.budget
        vocabulary = backend.vocabulary
        self._template, note = open_template(backend.facts.template, vocabulary.bos_text, vocabulary.eos_text)
        self._notes = [*backend.facts.notes, *serving.notes, *([note] if note else [])]
        self._renderer = Renderer(vocabulary, backend.tokenize, self._template)
        self._guard = Guard()
        self._compiler = Compiler(backend.matcher_tokenizer(), self._guard)
        self._spell = tokens_of(backend.tokenize, vocabulary.pieces)
        self._rates, paces = measure(backend, serving.threads)
        store = PrefixStore(serving.budget, backend.facts.block_rows, serving.shelf)
        self._sequences = Sequences(backend, store)
        self._batch = Batch(backend, self._sequences, self._rates, paces, serving.shelf is not None, backend.facts.name)
        self._worker = Worker(backend.facts.name, self._batch, self._rates, serving.batch, self._begin, self._put_away)

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

    def expected_wait(self, job: Job) -> float | None:
        return self._worker.expected_wait(job)

    def status(self, name: str, *, status: Literal["ready", "unloading"] = "ready") -> Member:
        facts, sequences = self._backend.facts, self._sequences
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
                entries=sequences.store.entries,
                bytes=sequences.store.size,
                hits=sequences.hits,
                misses=sequences.misses,
                evicted=sequences.store.evicted,
            ),
            rates=Rates(prefill_tok_s=self._rates.prefill, decode_tok_s=self._rates.decode),
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

    def _begin(self, prepared: Prepared) -> Generation:
        facts = self._backend.facts
        drafter = self._drafter(prepared.job) if prepared.options is None and facts.block_rows else None
        return Generation(prepared, self._backend.vocabulary, drafter, facts.branches)

    def _drafter(self, job: Job) -> LookupDrafter | None:
        if not job.draft or job.logprobs is not None:
            return None
        texts = [(part.text, part.role == "assistant") for part in job.parts]
        known = corpus(texts, escaped=isinstance(job.constraint, Json))
        return LookupDrafter(known, self._spell, self._rates.seconds, lambda: len(self._batch.slots) - 1)

    def _put_away(self) -> None:
        """The engine thread's last act: what stands is stored, where a store outlives it."""
        if self._batch.keeps:
            self._sequences.put_all_away()
        self._sequences.store.close()
        self._batch.close()


def load_member(reference: str, flags: ServingFlags, progress: LoadProgress, used_bytes: int) -> LoadedMember:
    """Open a model: resolve → precheck in a child → fit → load. See `caldrix.engine.api.Loader`."""
    path = obtain(reference, lambda done, total: progress("download", done, total))
    threads = flags.threads or usable_cores()
    counts = (flags.threads,) if flags.threads else thread_counts(threads)
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
        options = OpenOptions(threads, choose_window(model.shape, flags.window), verdict.repack, flags.max_batch)
        try:
            needs, note = _footprint(reference, model, options, used_bytes)
            _check_memory(reference, needs + budget, used_bytes, limit)
            backend = LlamaBackend(model, reference, options, needs, (*verdict.notes, *note))
        except BaseException:
            model.close()
            raise
    except EngineFailed as error:
        raise Refused("model_refused", str(error)) from error
    try:
        shelf, notes = _open_shelf(flags.store_dir, path, budget, backend.facts.block_rows)
        member = LoadedMember(backend, Serving(budget, flags.max_batch, counts, shelf, notes))
    except BaseException:
        backend.close()
        raise
    progress("load", size, size)
    return member


def _footprint(reference: str, model: LlamaModel, options: OpenOptions, used: int) -> tuple[int, tuple[str, ...]]:
    """What a member needs in bytes, or 0 and a note where that is not known: such a one is loaded alone.

    Raises Refused("footprint_unknown") beside others.
    """
    cache = plan_cache(model, options)
    try:
        return footprint(model.shape, cache.cells, cache.sequences, repack=options.repack), ()
    except FootprintUnknown as unknown:
        if used:
            raise Refused(
                "footprint_unknown",
                f"how much memory {reference} needs cannot be told ({unknown}), so it can only be loaded alone: "
                "unload the other members first",
            ) from unknown
        return 0, (f"{ALONE}: {unknown}",)


def _open_shelf(
    folder: Path | None, model: Path, budget: int, piece_rows: int
) -> tuple[DiskShelf | None, tuple[str, ...]]:
    """Where prefixes are kept over restarts; without it, a note that says why."""
    if folder is None or not budget:
        return None, ()
    try:
        return DiskShelf(folder, identity(model_digest(model), library_build(), piece_rows), budget), ()
    except (Refused, OSError) as error:
        return None, (f"prefixes are not kept over restarts: {error}",)


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
