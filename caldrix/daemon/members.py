"""The members of a pool: loading, looking up and unloading models by name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from caldrix.daemon.cancellation import Cancellation
from caldrix.daemon.log import Log
from caldrix.daemon.memory import give_back
from caldrix.daemon.names import NAME, slug
from caldrix.daemon.threads import call_soon, in_daemon_thread, is_fault
from caldrix.engine.api import EngineMember, Loader, ServingFlags
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Member, QueueInfo, Rates, StoreInfo, TemplateInfo

UNLOAD_WAIT_S = 30.0

Phase = Literal["download", "precheck", "load"]
Report = Callable[[Phase, int, int], None]
"""Called on the event loop: phase, done, total."""


@dataclass(eq=False)
class Resident:
    """A loaded model. `requests` are the cancellations of the generations that it serves."""

    name: str
    model: str
    engine: EngineMember
    window: int
    unloading: bool = False
    requests: set[Cancellation] = field(default_factory=set)
    _users: int = 0
    _unused: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._unused.set()

    def state(self) -> Member:
        return self.engine.status(self.name, status="unloading" if self.unloading else "ready")

    @contextlib.contextmanager
    def in_use(self, cancellation: Cancellation | None = None) -> Iterator[None]:
        """While this is open the model is not freed; an unload cancels `cancellation`."""
        self._users += 1
        self._unused.clear()
        if cancellation:
            self.requests.add(cancellation)
        try:
            yield
        finally:
            if cancellation:
                self.requests.discard(cancellation)
            self._users -= 1
            if self._users == 0:
                self._unused.set()

    async def free(self) -> None:
        """Cancel what it serves, wait until nobody uses it, and free the model. Each wait is bounded."""
        self.unloading = True
        for cancellation in tuple(self.requests):
            cancellation.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(UNLOAD_WAIT_S):
                await self._unused.wait()
        await in_daemon_thread(self.engine.close, f"caldrix-close-{self.name}")


class Members:
    """Loads run one after the other, since each needs to know what the others hold."""

    def __init__(self, load: Loader, flags: ServingFlags, log: Log) -> None:
        self._load = load
        self._log = log
        self._residents: dict[str, Resident] = {}
        self._loading: dict[str, str] = {}
        self._load_lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[Member]] = set()
        self.flags = flags

    @property
    def loading(self) -> bool:
        return bool(self._loading)

    def get(self, name: str) -> Resident:
        """Raises Refused: busy while it is being loaded, unknown_member where none of this name can be used."""
        if name in self._loading:
            raise Refused("busy", f"the member {name!r} is still being loaded; ask again when it is ready.")
        resident = self._residents.get(name)
        if resident is None:
            known = ", ".join(self._residents) or "none"
            raise Refused("unknown_member", f"there is no member {name!r}; loaded are: {known}.")
        if resident.unloading:
            raise Refused("unknown_member", f"the member {name!r} is being unloaded.")
        return resident

    def states(self) -> list[Member]:
        """Every member, also those that are being loaded."""
        loaded = [resident.state() for resident in self._residents.values()]
        return loaded + [_loading_state(name, model) for name, model in self._loading.items()]

    def used_bytes(self) -> int:
        """What the resident members need: their footprints and a context budget each."""
        states = [resident.state() for resident in self._residents.values()]
        return sum(state.footprint_bytes + state.context_budget_bytes for state in states)

    async def load(
        self, reference: str, name: str | None, flags: ServingFlags, report: Report, cancellation: Cancellation
    ) -> Member:
        """Load a model. Cancelled, it answers at once, and what the thread still brings is freed.

        Raises Refused: busy for a name in use, cancelled, and what the loader raises.
        """
        name = name or slug(reference)
        self._check_name(name)
        self._loading[name] = reference
        task = asyncio.create_task(self._run_load(reference, name, flags, report, cancellation))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        cancelled = asyncio.Event()
        cancellation.on_cancel(cancelled.set)
        waiting = asyncio.create_task(cancelled.wait())
        try:
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if not task.done():
            raise _load_cancelled(reference)
        return task.result()

    async def unload(self, name: str) -> None:
        """Free a member; its generations are cancelled first. Raises Refused: unknown_member, busy."""
        resident = self.get(name)
        await resident.free()
        model = resident.model
        del self._residents[name], resident
        await asyncio.to_thread(give_back)
        self._log.event("unloaded", member=name, model=model)

    async def close(self) -> None:
        """Free every member, side by side."""
        leaving = [resident.free() for resident in self._residents.values() if not resident.unloading]
        await asyncio.gather(*leaving, return_exceptions=True)

    def _check_name(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise Refused("bad_request", f"{name!r} is no member name; use letters, digits, '.', '_' and '-'.")
        if name in self._loading:
            raise Refused("busy", f"a member {name!r} is being loaded already ({self._loading[name]}).")
        if name in self._residents:
            model = self._residents[name].model
            raise Refused("busy", f"a member {name!r} is loaded already ({model}); unload it or choose another name.")

    async def _run_load(
        self, reference: str, name: str, flags: ServingFlags, report: Report, cancellation: Cancellation
    ) -> Member:
        try:
            async with self._load_lock:
                engine = await self._load_in_thread(reference, flags, report, cancellation)
                if cancellation.cancelled:
                    await in_daemon_thread(engine.close, f"caldrix-close-{name}")
                    raise _load_cancelled(reference)
                resident = Resident(name, reference, engine, engine.status(name).window)
                self._residents[name] = resident
        finally:
            del self._loading[name]
        self._log.event("loaded", member=name, model=reference, window=resident.window)
        return resident.state()

    async def _load_in_thread(
        self, reference: str, flags: ServingFlags, report: Report, cancellation: Cancellation
    ) -> EngineMember:
        loop = asyncio.get_running_loop()

        def progress(phase: Phase, done: int, total: int) -> None:
            if cancellation.cancelled:
                raise _load_cancelled(reference)
            call_soon(loop, report, phase, done, total)

        used = self.used_bytes()
        try:
            if cancellation.cancelled:
                raise _load_cancelled(reference)
            self._check_company(reference)
            return await in_daemon_thread(lambda: self._load(reference, flags, progress, used), "caldrix-load")
        except Refused as refusal:
            self._log.event("load refused", model=reference, code=refusal.code)
            raise
        except BaseException as error:
            if not is_fault(error):
                raise
            self._log.failure("load failed", error, model=reference)
            raise Refused(
                "engine_failed", f"loading {reference} failed unexpectedly: {type(error).__name__}: {error}"
            ) from error

    def _check_company(self, reference: str) -> None:
        """Beside a member whose memory is not known nothing is loaded: nobody can say whether it fits."""
        for resident in self._residents.values():
            state = resident.state()
            if not state.footprint_bytes and state.lane != "remote":
                raise Refused(
                    "footprint_unknown",
                    f"{reference} cannot be loaded beside {resident.name!r} ({resident.model}), whose memory is not "
                    "known; unload that one first.",
                )

    def _forget(self, task: asyncio.Task[Member]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # taken, so that asyncio does not report one that nobody waited for


def _load_cancelled(reference: str) -> Refused:
    return Refused("cancelled", f"the load of {reference} was cancelled.")


def _loading_state(name: str, model: str) -> Member:
    """A member of which nothing is known yet."""
    return Member(
        member=name,
        model=model,
        status="loading",
        lane="none",
        threads=0,
        window=0,
        footprint_bytes=0,
        context_budget_bytes=0,
        constraints=[],
        template=TemplateInfo(source="none", system="native", alternates=False, prefix_stable=False),
        queue=QueueInfo(running=0, waiting=0),
        store=StoreInfo(entries=0, bytes=0, hits=0, misses=0, evicted=0),
        rates=Rates(prefill_tok_s=None, decode_tok_s=None),
    )
