"""Room for the next turn: compaction above the soft limit, then the hard limit."""

from __future__ import annotations

from typing import Final

from aerix_server.profile.prompts import fill
from aerix_server.protocol.events import Compaction, MessageEvent, ReplacedSegment
from aerix_server.runtime import compact
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.context import Draft

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
    """Replace old results and turns by markers until the target is met; False when there was nothing to replace.

    Results that the model has not read yet stay, unless `unread`.
    """
    context = agent.context
    before, target = context.tokens, int(context.window * agent.settings.context.target_ratio)
    replaced: list[compact.Replacement] = []
    # Each pass replaces at least one segment for good, so this ends.
    while batch := compact.plan(
        context.segments if unread else compact.seen(context.segments), context.tokens - target
    ):
        await context.replace({item.id: item.marker for item in batch})
        replaced += batch
    if not replaced:
        return False
    agent.send(
        Compaction(
            agent=agent.name,
            before=before,
            after=context.tokens,
            target=target,
            replaced=[ReplacedSegment(id=item.id, marker=item.marker, tokens=item.tokens) for item in replaced],
        )
    )
    await _tell(agent, before, len(replaced))
    agent.show_usage()
    return True


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
