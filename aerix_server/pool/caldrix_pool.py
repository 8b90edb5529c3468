"""The pool port over caldrix's client: one connection for contexts, and one for each generation."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from aerix_server import __version__
from aerix_server.config.bounds import CONTROL_TIMEOUT_S, FRAME_GAP_S
from aerix_server.pool import translate
from aerix_server.pool.port import (
    ContextState,
    Edit,
    GenerationItem,
    GenerationOptions,
    MemberState,
    NewSegment,
    PoolFailed,
)
from caldrix.client.client import PoolClient
from caldrix.protocol.errors import CaldrixError, Refused
from caldrix.protocol.messages import Append, ClientInfo, Constraint, Member, Sampling

_CLIENT: Final = ClientInfo(name="aerix-server", version=__version__)
_CONSTRAINTS: Final[TypeAdapter[Constraint]] = TypeAdapter(Constraint)


class CaldrixPool:
    """A Pool. All connections carry one client id, so a context made on one is known on the others."""

    def __init__(self, socket: Path, client_id: str, control: PoolClient, max_connections: int) -> None:
        self._socket = socket
        self._client_id = client_id
        self._control = control
        self._slots = asyncio.Semaphore(max_connections)

    @classmethod
    async def connect(cls, socket: Path, max_connections: int) -> CaldrixPool:
        """Raises caldrix's own errors: whether to start a pool that does not answer is the caller's."""
        client_id = uuid.uuid4().hex
        control = await PoolClient.connect(socket, client_id, client=_CLIENT, timeout=CONTROL_TIMEOUT_S)
        return cls(socket, client_id, control, max_connections)

    @property
    def control(self) -> PoolClient:
        """The connection for contexts, for what is beyond the port: loads and status."""
        return self._control

    async def members(self) -> list[Member]:
        with pool_errors():
            return (await self._control.status()).members

    async def member(self, name: str) -> MemberState:
        found = next((member for member in await self.members() if member.member == name), None)
        if found is None:
            raise PoolFailed("unknown_member", f"the pool holds no member {name!r} any more; somebody unloaded it.")
        if found.status != "ready":
            raise PoolFailed("unknown_member", f"the member {name!r} is {found.status}, not ready.")
        return translate.member(found)

    async def create(self, member: str, segments: Sequence[NewSegment]) -> ContextState:
        with pool_errors():
            made = await self._control.create(member, [translate.segment(item) for item in segments])
            return translate.context(made)

    async def edit(self, context: str, edits: Sequence[Edit]) -> ContextState:
        with pool_errors():
            return translate.context(await self._control.edit(context, [translate.edit(item) for item in edits]))

    async def fork(self, context: str, until: str | None = None) -> ContextState:
        with pool_errors():
            return translate.context(await self._control.fork(context, until))

    async def show(self, context: str) -> ContextState:
        with pool_errors():
            return translate.context(await self._control.show(context))

    async def drop(self, context: str) -> None:
        with pool_errors():
            await self._control.drop(context)

    async def generate(self, context: str, options: GenerationOptions) -> AsyncGenerator[GenerationItem, None]:
        """Waits for one of the connections' slots first. Closing it early hangs up, which cancels the generation."""
        async with self._slots:
            with pool_errors():
                client = await PoolClient.connect(
                    self._socket, self._client_id, client=_CLIENT, timeout=CONTROL_TIMEOUT_S
                )
                frames = client.generate(
                    context,
                    options.max_new_tokens,
                    constraint=_constraint(options.constraint),
                    sampling=Sampling(temperature=options.temperature, seed=options.seed),
                    logprobs=0 if options.logprobs else None,
                    append=Append(id=options.append_id, pinned=options.append_pinned) if options.append_id else None,
                    frame_timeout=FRAME_GAP_S,
                    cancel_timeout=0,
                )
                try:
                    async for frame in frames:
                        item = translate.generation_item(frame)
                        if item is not None:
                            yield item
                finally:
                    # Hanging up cancels; nobody waits for the pass of a long prompt that is under way.
                    await client.aclose()
                    await frames.aclose()

    async def aclose(self) -> None:
        await self._control.aclose()


@contextmanager
def pool_errors() -> Iterator[None]:
    """caldrix's errors as the port's, the cause kept."""
    try:
        yield
    except Refused as error:
        raise PoolFailed(error.code, error.message) from error
    except CaldrixError as error:
        raise PoolFailed("unavailable", str(error)) from error
    except ValidationError as error:
        raise PoolFailed("bad_request", f"the pool's protocol has no place for this: {error}") from error


def _constraint(given: dict[str, Any] | None) -> Constraint | None:
    return None if given is None else _CONSTRAINTS.validate_python(given)
