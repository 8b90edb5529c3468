"""One turn asked of the model: generate, parse, and ask again where that gave no turn."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import Any

from aerix_server.config.bounds import TURN_RETRIES
from aerix_server.pool.port import Generated, GenerationOptions, PoolFailed, Text, Waiting
from aerix_server.protocol.events import MessageEvent, TurnDelta
from aerix_server.runtime import turn as turns
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.constraint import constraint_for, give_up_help, plain_constraint
from aerix_server.runtime.doubts import find_doubts
from aerix_server.runtime.ports import Ended
from aerix_server.runtime.room import make_room
from aerix_server.runtime.turn import Turn, TurnError
from aerix_server.runtime.waiting import waiting_event


async def ask(agent: Agent, limit: int) -> Turn:
    """The next turn, of at most `limit` tokens. Raises Ended when TURN_RETRIES more attempts gave none."""
    agent.numbers.turns += 1
    for attempt in range(TURN_RETRIES + 1):
        generated = await _generate(agent, limit)
        parsed = turns.parse_turn(generated.text, agent.numbers.calls, text_final=not agent.structured)
        if isinstance(parsed, Turn):
            parsed = _doubted(agent, generated, parsed)
            await _accept(agent, generated, parsed)
            agent.thoughts.append(parsed.thought)
            return parsed
        error = await _refuse(agent, generated, parsed, limit)
        if attempt < TURN_RETRIES:
            await agent.tell(turns.ask_shorter(limit) if generated.finish == "length" else turns.ask_again(error))
            limit = await make_room(agent)
    raise Ended(
        "failed", f"turn {agent.numbers.turns} gave no valid answer in {TURN_RETRIES + 1} attempts: {error.reason}"
    )


async def _generate(agent: Agent, limit: int) -> Generated:
    constraint = await constraint_for(agent)
    try:
        return await _generate_under(agent, limit, constraint)
    except PoolFailed as error:
        if error.code != "constraint_invalid" or constraint is None or constraint["kind"] == "Json":
            raise
        give_up_help(agent, error.message)
    return await _generate_under(agent, limit, plain_constraint(agent))


async def _generate_under(agent: Agent, limit: int, constraint: dict[str, Any] | None) -> Generated:
    turn, sampling = agent.numbers.turns, agent.settings.sampling
    options = GenerationOptions(
        limit,
        constraint=constraint,
        temperature=sampling.temperature,
        seed=_seed(agent),
        append_id=agent.context.next_id(),
        logprobs=agent.settings.assist.flag_doubts,
    )
    generated = None
    async with aclosing(agent.context.generate(options)) as items:
        async for item in items:
            match item:
                case Waiting():
                    agent.send(waiting_event(item, agent=agent.name))
                case Text():
                    agent.send(TurnDelta(agent=agent.name, turn=turn, text=item.text))
                case Generated():
                    generated = item
    if generated is None or generated.finish == "cancelled":
        raise Ended(
            "failed", f"the pool broke off turn {turn} without an answer; try again, or look into the pool's log"
        )
    agent.usage += generated.usage
    return generated


def _doubted(agent: Agent, generated: Generated, turn: Turn) -> Turn:
    doubts = find_doubts(generated.text, generated.logprobs, turn.calls, agent.settings.assist.doubt_below)
    return replace(turn, doubts=doubts)


async def _accept(agent: Agent, generated: Generated, turn: Turn) -> None:
    agent.numbers.calls += len(turn.calls)
    message = _message(agent, generated).model_copy(
        update={"thought": turn.thought, "calls": list(turn.calls) or None, "final": turn.final}
        | {"doubts": list(turn.doubts) or None}
    )
    await agent.context.keep(generated, f"turn {agent.numbers.turns}", lambda: agent.send(message))
    agent.show_usage(generated.usage)


async def _refuse(agent: Agent, generated: Generated, error: TurnError, limit: int) -> TurnError:
    """A cut text is taken back; any other stays for the model to see what it wrote."""
    if generated.finish == "length":
        error = TurnError(f"it was cut by its limit of {limit} tokens before its JSON closed")
    message = _message(agent, generated).model_copy(update={"error": error.reason})
    if generated.finish == "length":
        await agent.context.forget(generated)
        agent.send(message)
    else:
        await agent.context.keep(generated, f"turn {agent.numbers.turns} refused", lambda: agent.send(message))
    return error


def _message(agent: Agent, generated: Generated) -> MessageEvent:
    return MessageEvent(
        agent=agent.name,
        turn=agent.numbers.turns,
        role="assistant",
        raw=generated.text,
        usage=generated.usage,
        timing=generated.timing,
        recomputed_from=generated.usage.recomputed_from,
        seed=_seed(agent),
    )


def _seed(agent: Agent) -> int:
    return agent.settings.sampling.seed + agent.numbers.turns - 1
