"""One Generate request: check it, queue it, stream it, append its output.

The output is appended when the model ended it (`stop`), or when its length was cut and no Json constraint stood: half a
JSON document is of no use in a context. A cancelled output is never appended: its text is in the answer, and who
cancelled decides what becomes of it. The id of an output is reserved from the start, and edits made meanwhile stay: the
output goes to the context's end, whose version rises once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator

from caldrix.daemon.cancellation import Cancellation
from caldrix.daemon.contexts import Context, Contexts
from caldrix.daemon.edits import StoredSegment
from caldrix.daemon.members import Members, Resident
from caldrix.daemon.stream import Stream
from caldrix.daemon.threads import call_soon, pulsed
from caldrix.engine.api import EngineMember
from caldrix.engine.jobs import Failed, Finished, Item, Job
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Constraint, Done, Generate, Json, Message, SegmentInfo, Timing

Send = Callable[[Message], None]

FIRST_FRAME_S = 0.2
"""When the engine has said nothing for so long, a first frame is sent without it."""
FRAME_GAP_S = 2.0


async def generate(
    request: Generate, client_id: str, members: Members, contexts: Contexts, cancellation: Cancellation, send: Send
) -> Done:
    """Serve the request. Raises Refused."""
    context = contexts.get(client_id, request.context)
    resident = members.get(context.member)
    check_schema(request.constraint)
    with _reserved(context, request), resident.in_use(cancellation):
        items: asyncio.Queue[Item] = asyncio.Queue()
        job = make_job(request, context, _deliver_to(items))
        stream = Stream(request.id, send, job, resident)
        cancellation.on_cancel(job.cancel)
        queueing = asyncio.to_thread(_check_and_submit, resident.engine, job)
        await pulsed(queueing, stream.beat, first=FIRST_FRAME_S, every=FRAME_GAP_S)
        finished = await _follow(stream, items)
        return await _conclude(request, finished, context, resident, contexts)


def _check_and_submit(engine: EngineMember, job: Job) -> None:
    """Both may compile the constraint, which takes a while."""
    engine.check(job)
    engine.submit(job)


def make_job(request: Generate, context: Context, deliver: Callable[[Item], None]) -> Job:
    """The engine's job. A limit beyond the room left is cut to it; no room at all raises Refused("window_exceeded")."""
    prompt, window = len(context.rendered.ids), context.window
    room = window - prompt
    if room < 1:
        raise Refused(
            "window_exceeded",
            f"the prompt has {prompt} tokens and the window of member {context.member!r} holds {window}, "
            "an answer included; shorten or remove segments.",
            {"tokens": prompt, "window": window},
        )
    return Job(
        ids=context.rendered.ids,
        max_new_tokens=min(request.max_new_tokens, room),
        deliver=deliver,
        constraint=request.constraint,
        sampling=request.sampling,
        logprobs=request.logprobs,
        parts=tuple(segment.part() for segment in context.segments),
        client=context.client_id,
        draft=request.draft == "auto",
    )


def check_schema(constraint: Constraint | None) -> None:
    """Raises Refused("constraint_invalid") for a schema that holds what JSON cannot, as a CBOR map may."""
    if not isinstance(constraint, Json):
        return
    try:
        json.dumps(constraint.schema_, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Refused("constraint_invalid", f"the schema holds a value that is not JSON: {error}.") from error


def is_appended(request: Generate, finished: Finished) -> bool:
    """Whether the output becomes a segment. Pure."""
    if request.append is None or finished.finish == "cancelled":
        return False
    return finished.finish == "stop" or not isinstance(request.constraint, Json)


@contextlib.contextmanager
def _reserved(context: Context, request: Generate) -> Iterator[None]:
    if request.append is None:
        yield
        return
    context.reserve(request.append.id)
    try:
        yield
    finally:
        context.reserved.discard(request.append.id)


def _deliver_to(items: asyncio.Queue[Item]) -> Callable[[Item], None]:
    loop = asyncio.get_running_loop()
    return lambda item: call_soon(loop, items.put_nowait, item)


async def _follow(stream: Stream, items: asyncio.Queue[Item]) -> Finished:
    """Send each item as a frame until the last one. Raises Refused when it is a failure."""
    stream.announce()
    pause = FIRST_FRAME_S
    while True:
        item = await pulsed(items.get(), stream.beat, first=pause, every=FRAME_GAP_S)
        pause = FRAME_GAP_S
        match item:
            case Finished():
                return item
            case Failed(code=code, message=message):
                raise Refused(code, message)
            case _:
                stream.show(item)


async def _conclude(
    request: Generate, finished: Finished, context: Context, resident: Resident, contexts: Contexts
) -> Done:
    segment = None
    if is_appended(request, finished):
        segment = await _append(request, finished, context, resident, contexts)
    return Done(
        id=request.id,
        finish=finished.finish,
        text=finished.text,
        usage=finished.usage,
        timing=Timing(queued_ms=finished.queued_ms, prefill_ms=finished.prefill_ms, decode_ms=finished.decode_ms),
        choice=finished.choice,
        logprobs=finished.logprobs,
        segment=segment,
        context_version=context.version if segment else None,
    )


async def _append(
    request: Generate, finished: Finished, context: Context, resident: Resident, contexts: Contexts
) -> SegmentInfo | None:
    assert request.append is not None
    resident.engine.remember(finished.text, finished.ids)
    output = StoredSegment(request.append.id, "assistant", finished.text, request.append.pinned, finished.ids)
    try:
        return await contexts.append_output(context, output)
    except Refused as refusal:
        raise Refused(
            refusal.code, f"the output was generated but could not be appended: {refusal.message}"
        ) from refusal
