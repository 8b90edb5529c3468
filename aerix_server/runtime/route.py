"""Routing: which shape a request has, chosen on a throwaway context by the decision member."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final, get_args

from aerix_server.config.bounds import BYTES_PER_TOKEN, ROUTING_TOKENS
from aerix_server.config.settings import Routing
from aerix_server.pool.port import Generated, GenerationOptions, MemberState, NewSegment, Pool, PoolFailed, Waiting
from aerix_server.protocol.events import Event, Route, RouteEvent, Usage
from aerix_server.runtime.caps import cut, speakable
from aerix_server.runtime.lease import Lease
from aerix_server.runtime.waiting import waiting_event

ROUTES: Final[tuple[Route, ...]] = get_args(Route)
FALLBACK: Final[Route] = "edit"


async def choose(
    pool: Pool, member: MemberState, routing: Routing, instructions: str, request: str, send: Callable[[Event], None]
) -> tuple[Route, Usage]:
    """Route a request and log it. Raises PoolFailed.

    `instructions` is routing.md; a request too long for the member is judged by its head.
    """
    started = time.monotonic()
    head = cut(speakable(request), member.window // 2 * BYTES_PER_TOKEN).kept
    segments = [NewSegment("routing", "system", instructions), NewSegment("request", "user", head)]
    lease = Lease(pool)
    try:
        context = (await lease.take(pool.create(member.member, segments))).context
        generated = await _generate(pool, context, "OneOf" in member.constraints, send)
    except PoolFailed as error:
        if error.code != "window_exceeded":
            raise
        generated = None
    finally:
        await lease.give_back()
    choice, matched = decide(generated, routing.min_probability)
    send(
        RouteEvent(
            choice=choice,
            scores=list(generated.scores) if generated else [],
            matched=matched,
            member=member.member,
            ms=round((time.monotonic() - started) * 1000),
        )
    )
    return choice, generated.usage if generated else Usage()


def forced(route: Route, member: str, send: Callable[[Event], None]) -> Route:
    """Log a route that nobody had to choose."""
    send(RouteEvent(choice=route, scores=[], matched=True, member=member, ms=0, forced=True))
    return route


def decide(generated: Generated | None, min_probability: float) -> tuple[Route, bool]:
    """The route, and whether the answer named it: no match, and a choice below the least probability, are edit."""
    if generated is None:
        return FALLBACK, False
    said = (generated.choice or generated.text).strip().strip(".\"'`").lower()
    found = next((route for route in ROUTES if route == said), None)
    probability = next((score.probability for score in generated.scores if score.option == found), 1.0)
    if found is None or probability < min_probability:
        return FALLBACK, False
    return found, True


async def _generate(pool: Pool, context: str, constrained: bool, send: Callable[[Event], None]) -> Generated | None:
    constraint: dict[str, Any] | None = {"kind": "OneOf", "options": list(ROUTES)} if constrained else None
    options = GenerationOptions(ROUTING_TOKENS, constraint)
    generated = None
    async with aclosing(pool.generate(context, options)) as items:
        async for item in items:
            if isinstance(item, Generated):
                generated = item
            elif isinstance(item, Waiting):
                send(waiting_event(item, what="routing"))
    return generated
