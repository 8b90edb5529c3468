"""What each request does: one short function a type, from the request to its last answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from caldrix.daemon.cancellation import Cancellation
from caldrix.daemon.flags import parse_flags
from caldrix.daemon.generate import FRAME_GAP_S, generate
from caldrix.daemon.members import Phase
from caldrix.daemon.pool import OpenRequest, Pool
from caldrix.daemon.threads import pulsed
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import (
    Cancel,
    ContextCreate,
    ContextDrop,
    ContextEdit,
    ContextFork,
    ContextShow,
    Done,
    Generate,
    Hello,
    MemberLoad,
    MemberLoaded,
    MemberUnload,
    Message,
    Ok,
    PoolStatusRequest,
    PoolStop,
    Progress,
)


@dataclass(frozen=True)
class Call:
    """One request's surroundings. `send` takes the frames before the last answer; `facts` go into its log line."""

    pool: Pool
    client_id: str
    open_requests: Mapping[int, OpenRequest]
    cancellation: Cancellation
    send: Callable[[Message], None]
    facts: dict[str, Any] = field(default_factory=dict)


async def answer(call: Call, request: Message) -> Message:
    """The last answer to `request`. Raises Refused."""
    reply: Message = await _HANDLERS[type(request)](call, request)
    return reply


async def _hello(call: Call, request: Hello) -> Message:
    raise Refused("bad_request", "this connection has had its Hello; open another one for another client_id.")


async def _status(call: Call, request: PoolStatusRequest) -> Message:
    return call.pool.status(request.id)


async def _load(call: Call, request: MemberLoad) -> Message:
    members = call.pool.members
    flags = parse_flags(request.flags or [], members.flags)
    latest: list[tuple[Phase, int, int]] = []
    answered = False

    def report(phase: Phase, done: int, total: int) -> None:
        latest[:] = [(phase, done, total)]
        if not answered:
            call.send(Progress(id=request.id, phase=phase, done=done, total=total))

    def beat() -> None:
        report(*(latest[0] if latest else ("load", 0, 0)))

    call.facts.update(model=request.model, member=request.member)
    loading = members.load(request.model, request.member, flags, report, call.cancellation)
    try:
        member = await pulsed(loading, beat, first=FRAME_GAP_S, every=FRAME_GAP_S)
    finally:
        answered = True
    return MemberLoaded(id=request.id, member=member)


async def _unload(call: Call, request: MemberUnload) -> Message:
    call.facts.update(member=request.member)
    await call.pool.members.unload(request.member)
    call.pool.contexts.drop_member(request.member)
    return Ok(id=request.id)


async def _create(call: Call, request: ContextCreate) -> Message:
    context = await call.pool.contexts.create(call.client_id, request.member, request.segments)
    return context.info(request.id)


async def _edit(call: Call, request: ContextEdit) -> Message:
    context = await call.pool.contexts.edit(call.client_id, request.context, request.edits, request.version)
    return context.info(request.id)


async def _fork(call: Call, request: ContextFork) -> Message:
    context = await call.pool.contexts.fork(call.client_id, request.context, request.until)
    return context.info(request.id)


async def _show(call: Call, request: ContextShow) -> Message:
    return call.pool.contexts.get(call.client_id, request.context).info(request.id, text=request.text)


async def _drop(call: Call, request: ContextDrop) -> Message:
    call.pool.contexts.drop(call.client_id, request.context)
    return Ok(id=request.id)


async def _generate(call: Call, request: Generate) -> Done:
    contexts = call.pool.contexts
    context = contexts.get(call.client_id, request.context)
    call.facts.update(member=context.member, prompt_tokens=len(context.rendered.ids))
    if call.pool.options.log_text:
        segments = context.segments
        call.facts["prompt"] = [{"role": segment.role, "text": segment.text} for segment in segments]
    done = await generate(request, call.client_id, call.pool.members, contexts, call.cancellation, call.send)
    if call.pool.options.log_text:
        call.facts["output"] = done.text
    return done


async def _cancel(call: Call, request: Cancel) -> Message:
    if target := call.open_requests.get(request.target):
        target.cancellation.cancel()
    return Ok(id=request.id)


async def _stop(call: Call, request: PoolStop) -> Message:
    call.pool.request_stop(request.grace_s or 0.0)
    await call.pool.all_answered.wait()
    return Ok(id=request.id)


_HANDLERS: dict[type[Message], Callable[[Call, Any], Awaitable[Message]]] = {
    Hello: _hello,
    PoolStatusRequest: _status,
    MemberLoad: _load,
    MemberUnload: _unload,
    ContextCreate: _create,
    ContextEdit: _edit,
    ContextFork: _fork,
    ContextShow: _show,
    ContextDrop: _drop,
    Generate: _generate,
    Cancel: _cancel,
    PoolStop: _stop,
}
