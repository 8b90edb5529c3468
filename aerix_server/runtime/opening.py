"""The segments every agent's context begins with, in the wording that fits the member's window."""

from __future__ import annotations

from aerix_server.pool.port import ContextState, MemberState, NewSegment
from aerix_server.protocol.events import Notice
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.caps import byte_length, speakable
from aerix_server.runtime.compact import turn_tokens
from aerix_server.runtime.context import Draft
from aerix_server.runtime.lease import Lease
from aerix_server.runtime.ports import Ended
from aerix_server.runtime.prompt import opening
from aerix_server.runtime.run import Run


async def opening_for(run: Run, member: MemberState) -> list[Draft]:
    """The opening for a member, chosen once a request: tools are told of in full where it then takes no more than the
    share of the window that compaction aims at, else briefly, which the user is told with the numbers.

    Raises PoolFailed.
    """
    async with run.choosing:
        if member.member not in run.openings:
            run.openings[member.member] = await _choose(run, member)
    return run.openings[member.member]


async def _choose(run: Run, member: MemberState) -> list[Draft]:
    target = int(member.window * run.ports.settings.context.target_ratio)
    full = _opening(run, member, brief=False)
    # A token has at least one byte, so this many bytes are never more tokens.
    if sum(byte_length(draft.text) for draft in full) <= target or (await _count(run, member, full)).tokens <= target:
        return full
    short = _opening(run, member, brief=True)
    counted = await _count(run, member, short)
    run.send(Notice(level="info" if counted.tokens <= target else "warning", text=_told(short, counted, target)))
    return short


def _opening(run: Run, member: MemberState, brief: bool) -> list[Draft]:
    return opening(run.prompts, list(run.tools.values()), run.ports.cwd, run.ports.instructions, brief=brief)


async def _count(run: Run, member: MemberState, drafts: list[Draft]) -> ContextState:
    """The pool's count of them, on a context that is dropped again."""
    segments = [NewSegment(f"s{at}", draft.role, speakable(draft.text)) for at, draft in enumerate(drafts, 1)]
    lease = Lease(run.ports.pool)
    try:
        return await lease.take(run.ports.pool.create(member.member, segments))
    finally:
        await lease.give_back()


def _told(drafts: list[Draft], counted: ContextState, target: int) -> str:
    parts = ", ".join(f"{draft.label} {seen.tokens}" for draft, seen in zip(drafts, counted.segments, strict=True))
    text = (
        f"the window of {counted.window} tokens is small, so the tools are described briefly: what stands in every "
        f"prompt takes {counted.tokens} tokens ({parts}), {counted.window - counted.tokens} are left for the work"
    )
    if counted.tokens <= target:
        return text
    return f"{text}; with less than half of it left the context will be compacted often: shorten the instruction files"


def refuse_too_long(agent: Agent) -> None:
    """Raises Ended where a fresh context leaves no room for a turn."""
    context = agent.context
    turn = turn_tokens(agent.settings.context.max_new_tokens, context.window)
    if context.tokens + turn < context.window:
        return
    parts = ", ".join(f"{segment.label} {segment.tokens}" for segment in context.segments)
    raise Ended(
        "failed",
        f"the request does not fit the model: it has {context.tokens} tokens ({parts}), a turn needs {turn} more, "
        f"and the window of {agent.member.model} is {context.window}. "
        "Shorten the prompt or the instruction files, or choose a model with a larger window.",
    )
