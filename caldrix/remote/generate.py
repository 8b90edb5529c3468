"""One generation by a server: ask, pass on what comes, check what the constraint promises, and say how it ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from llguidance import LLMatcher

from caldrix.engine.jobs import Failed, Finished, Job, Part, Prefill
from caldrix.engine.oneof import decide
from caldrix.engine.template import Renderer
from caldrix.protocol.errors import ErrorCode, Refused
from caldrix.protocol.messages import Finish, Json, OneOf
from caldrix.remote.dialect import Ask, Chunk, Dialect, Means
from caldrix.remote.grammar import keeps
from caldrix.remote.jsontext import JsonStyle, fault, restyled, without_fence
from caldrix.remote.output import Output
from caldrix.remote.server import Server, ServerFault

MAX_AGAIN: Final = 2
"""How often an answer that is no JSON of its schema is asked for again, where the server cannot enforce the schema."""
WHOLE_TOKEN_S: Final = 2.0
"""What a token may take of an answer that comes in one piece."""


@dataclass(frozen=True)
class Prepared:
    """A job with what was made ready for it: the ids of OneOf's options, or the matcher its output is checked with."""

    job: Job
    options: list[list[int]] | None = None
    matcher: LLMatcher | None = None


@dataclass(frozen=True)
class Line:
    """What a member has: its server, and what of constraints that server enforces itself."""

    server: Server
    dialect: Dialect
    renderer: Renderer
    means: frozenset[Means]
    window: int


async def serve(prepared: Prepared, line: Line) -> Finished | Failed:
    """Deliver the job's Prefill and TextDelta items; gives its last one. A cancelled task ends as a cancelled job."""
    job = prepared.job
    output = Output(job)
    job.deliver(Prefill(0, len(job.ids), 0))
    try:
        if prepared.options is not None:
            return await _choose(prepared, prepared.options, line, output)
        if isinstance(job.constraint, Json) and "json" not in line.means:
            return await _checked_json(job, job.constraint, line, output)
        return await _followed(prepared, line, output)
    except asyncio.CancelledError:
        return output.finished("cancelled", output.ids or ())
    except Refused as refused:
        return Failed(refused.code, refused.message)
    except ServerFault as broken:
        return Failed(_code(broken, job), f"{broken}.")


async def _choose(prepared: Prepared, options: list[list[int]], line: Line, output: Output) -> Finished:
    job = prepared.job
    assert isinstance(job.constraint, OneOf)
    scores = await line.dialect.score(line.server.answer, job.ids, options)
    job.deliver(Prefill(len(job.ids), len(job.ids), 0))
    output.choice = decide(job.constraint.options, scores, job.sampling, np.random.default_rng(job.sampling.seed))
    ids = options[job.constraint.options.index(output.choice.option)]
    if job.logprobs is not None:
        output.logprobs = await line.dialect.logprobs(line.server.answer, job.ids, ids, job.logprobs)
    for delta in output.add(Chunk(output.choice.option, tuple(ids))):
        job.deliver(delta)
    return output.finished("stop", ids)


async def _followed(prepared: Prepared, line: Line, output: Output) -> Finished:
    """A generation whose constraint, if it has one, the server enforces; that it did is checked at the end."""
    job = prepared.job
    constraint = job.constraint
    assert not isinstance(constraint, OneOf)
    output.style = JsonStyle() if isinstance(constraint, Json) else None
    ask = Ask(tuple(job.ids), job.max_new_tokens, job.sampling, constraint, job.logprobs)
    finish = await _one_try(ask, line, output)
    await _complete_logprobs(ask, line, output)
    if finish == "stop":
        broken = None
        if isinstance(constraint, Json):
            broken = fault(output.text, constraint.schema_)
        elif prepared.matcher is not None and not keeps(prepared.matcher, output.text):
            broken = f"{output.text[:100]!r} is not one of its texts"
        if broken:
            raise ServerFault(f"{line.dialect.name} did not keep to the {_kind(job)} constraint: {broken}")
    return output.finished(finish, await _ids(output, line))


async def _checked_json(job: Job, constraint: Json, line: Line, output: Output) -> Finished:
    """A server without a field for schemas: its answer is checked and, when it is wrong, asked for again."""
    output.held = True
    ids, parts = tuple(job.ids), list(job.parts)
    for attempt in range(MAX_AGAIN + 1):
        room = line.window - len(ids)
        if room < 1:
            raise Refused("window_exceeded", f"asking again needs {len(ids)} tokens, the window holds {line.window}.")
        ask = Ask(ids, min(job.max_new_tokens, room), job.sampling, None, job.logprobs)
        finish = await _one_try(ask, line, output)
        text = without_fence(output.raw).strip()
        wrong = fault(text, constraint.schema_)
        if wrong is None or finish == "length":
            await _complete_logprobs(ask, line, output)
            job.deliver(output.release(restyled(text)))
            return output.finished(finish if wrong else "stop", await _ids(output, line))
        if attempt < MAX_AGAIN:
            parts += [Part("assistant", output.raw), Part("user", _correction(constraint, wrong))]
            ids = (await asyncio.to_thread(line.renderer.render, parts)).ids
            output.again()
    raise ServerFault(
        f"{line.dialect.name} answered {MAX_AGAIN + 1} times with what is no JSON of the schema, the last time "
        f"since {wrong}"
    )


async def _one_try(ask: Ask, line: Line, output: Output) -> Finish:
    """Stream one answer into the output; gives how it finished. Raises ServerFault for a stream that ends early."""
    url, body = line.dialect.generation(ask)
    read = line.dialect.reader()
    patience_s = 0.0 if body["stream"] else WHOLE_TOKEN_S * ask.max_new_tokens
    async with line.server.stream(url, body, patience_s) as events:
        async for event in events:
            if not event:
                break
            _pass_on(read(event), output)
    if output.finish is None:
        raise ServerFault(f"{line.server.address.root} ended its answer early, without saying why")
    if output.ids is None and output.completion_tokens is None:
        output.completion_tokens = len(await asyncio.to_thread(line.dialect.tokenize, output.raw))
    for delta in output.end():
        output.job.deliver(delta)
    return output.finish


def _pass_on(chunk: Chunk, output: Output) -> None:
    job = output.job
    if chunk.progress is not None:
        output.cached = chunk.progress.recomputed_from
        job.deliver(chunk.progress)
        return
    waited = output.first is None
    deltas = list(output.add(chunk))
    if waited and output.first is not None:
        job.deliver(Prefill(len(job.ids), len(job.ids), output.cached or 0))
    for delta in deltas:
        job.deliver(delta)


async def _complete_logprobs(ask: Ask, line: Line, output: Output) -> None:
    """One entry for each token, as was promised. A top of 0 is served by one, which is taken off again."""
    if ask.logprobs is None:
        return
    ids = output.ids if output.ids is not None else ()
    if len(output.logprobs) != len(ids):
        output.logprobs = await line.dialect.logprobs(line.server.answer, ask.ids, ids, ask.logprobs)
    if ask.logprobs == 0:
        output.logprobs = [entry.model_copy(update={"top": []}) for entry in output.logprobs]


async def _ids(output: Output, line: Line) -> Sequence[int]:
    """The ids to render this output with later: those it was generated with, while its text is what they spell."""
    if output.ids is not None and output.text == output.raw:
        return output.ids
    return await asyncio.to_thread(line.dialect.tokenize, output.text)


def _correction(constraint: Json, wrong: str) -> str:
    return (
        f"That answer cannot be used: {wrong}. Answer again, with nothing but one JSON value of this schema:\n"
        f"{json.dumps(constraint.schema_)}"
    )


def _code(fault: ServerFault, job: Job) -> ErrorCode:
    if fault.status not in (400, 422):
        return "engine_failed"
    return "bad_request" if job.constraint is None or isinstance(job.constraint, OneOf) else "constraint_invalid"


def _kind(job: Job) -> str:
    assert job.constraint is not None
    return job.constraint.kind
