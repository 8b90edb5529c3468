"""Room for the next turn: compaction above the soft limit, then the hard limit."""

from __future__ import annotations

from typing import Final

from aerix_server.profile.prompts import fill
from aerix_server.protocol.events import Compaction, MessageEvent, ReplacedSegment
from aerix_server.runtime import compact
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.context import AgentContext, Draft

WORTH_SHARE: Final = 50
"""With room for the turn, a compaction must free at least this share of the window."""


async def make_room(agent: Agent) -> int:
    """The tokens the next turn may take, after compacting where that is due. Raises Ended at the context floor."""
    context, wanted = agent.context, agent.turn_tokens
    if _room(agent) < wanted or _worth_compacting(agent):
        await compact_context(agent)
    if _room(agent) < wanted:
        # Better a result lost unread than no turn at all.
        await compact_context(agent, unread=True)
    if _room(agent) >= wanted:
        return wanted
    return agent.hard_limit.hit(_room(agent), compact.largest(context.segments), context.window)


def _room(agent: Agent) -> int:
    return agent.context.window - agent.context.tokens - 1


def _worth_compacting(agent: Agent) -> bool:
    """Over the soft limit, and for more than a few tokens: after a pass the rest of the prompt is computed anew."""
    context = agent.context
    soft = compact.soft_limit(context.window, agent.settings.context.soft_ratio)
    return context.tokens > soft and compact.gain(compact.seen(context.segments)) >= context.window // WORTH_SHARE


async def compact_context(agent: Agent, unread: bool = False) -> bool:
    """Replace old results and turns by markers until the target is met; False when there was nothing to replace, or
    somebody objected at PreCompact.

    Results that the model has not read yet stay, unless `unread`.
    """
    context = agent.context
    before, target = context.tokens, int(context.window * agent.settings.context.target_ratio)
    if not _batch(context, target, unread) and (context.tokens <= target or _fold(context, unread) is None):
        return False
    answer = await agent.fire("PreCompact", before=before, target=target)
    if answer.block is not None:
        agent.send(Compaction(agent=agent.name, before=before, after=before, target=target, replaced=[], blocked=True))
        return False
    replaced: list[compact.Replacement] = []
    # Each pass replaces at least one segment for good, so this ends.
    while batch := _batch(context, target, unread):
        await context.replace({item.id: item.marker for item in batch})
        replaced += batch
    told = [ReplacedSegment(id=item.id, marker=item.marker, tokens=item.tokens) for item in replaced]
    if context.tokens > target and (folded := _fold(context, unread)) is not None:
        told += await _folded(context, folded)
    agent.send(Compaction(agent=agent.name, before=before, after=context.tokens, target=target, replaced=told))
    await _tell(agent, before, len(told))
    agent.show_usage()
    await agent.fire("ContextCompact", before=before, after=context.tokens, target=target)
    return True


async def _folded(context: AgentContext, fold: compact.Fold) -> list[ReplacedSegment]:
    """Make many short segments one."""
    await context.replace({fold.kept.id: fold.text})
    await context.remove([item.id for item in fold.gone])
    return [ReplacedSegment(id=item.id, marker=fold.text, tokens=item.tokens) for item in (fold.kept, *fold.gone)]


def _fold(context: AgentContext, unread: bool) -> compact.Fold | None:
    return compact.fold(context.segments if unread else compact.seen(context.segments))


def _batch(context: AgentContext, target: int, unread: bool) -> tuple[compact.Replacement, ...]:
    segments = context.segments if unread else compact.seen(context.segments)
    return compact.plan(segments, context.tokens - target)


async def _tell(agent: Agent, before: int, count: int) -> None:
    """One note says what happened; the note of an earlier compaction goes."""
    context = agent.context
    numbers = {"count": count, "before": before, "after": context.tokens, "window": context.window}
    text = fill(agent.prompts["compact"], numbers)
    stale = [segment.id for segment in context.segments if segment.label == "compaction note"]
    if stale:
        await context.remove(stale)
    agent.send(MessageEvent(agent=agent.name, turn=agent.numbers.turns, role="user", text=text))
    await context.append(Draft("user", "compaction note", text))
