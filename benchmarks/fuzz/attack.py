"""One attacker: connection after connection, each with mutated messages or mutated bytes, and what a pool owes it.

What it owes: after messages that are frames, as many last answers as messages; after bytes that are none, one Error
and the end of the connection. Never silence, never an answer that is no frame, never a fault of its own inside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks.fuzz.messages import MEMBER, mutated, requests
from benchmarks.fuzz.streams import conversation, hello, spoiled, spoiled_message
from benchmarks.fuzz.talk import ANSWER_S, STREAMED, Offence, Talk, Tally, connected

MESSAGES: Final = 12

Blame = Callable[[str, Sequence[bytes]], None]
"""Takes a fault, as a sentence, and the streams that were sent."""


async def attack(
    path: Path, seed: str, tally: Tally, stop: asyncio.Event, blame: Blame, go: asyncio.Event | None = None
) -> None:
    """Go on until `stop`, with a rest while `go` is not set. Ends when nobody accepts.

    Each offence goes to `blame` with the bytes that were sent.
    """
    random, number = Random(seed), 0  # noqa: S311
    while not stop.is_set():
        if go is not None:
            await go.wait()
        number += 1
        try:
            with connected(path) as connection:
                talk = Talk(random, f"{seed}-{number}", random.choice(("cbor", "cbor", "json")), connection, tally)
                tally.connections += 1
                await _one(talk, random.choice((_messages, _messages, _bytes)), blame)
            with connected(path) as connection:
                await _one(Talk(random, talk.name, "cbor", connection, tally, talk.contexts), _tidy_up, blame)
        except OSError as error:
            blame(f"no connection could be opened: {error}", tally.recent)
            return
        tally.recent.append(bytes(talk.sent[: 1 << 20]))


async def _one(talk: Talk, way: Callable[[Talk], Awaitable[None]], blame: Blame) -> None:
    try:
        await way(talk)
    except Offence as offence:
        blame(str(offence), [bytes(talk.sent)])
    except TimeoutError:
        blame(f"nothing came, or nothing was read, for {ANSWER_S:.0f} s", [bytes(talk.sent)])


async def _messages(talk: Talk) -> None:
    """Messages with faults, on a context that stands, among them a frame that is broken now and then."""
    context = await _begin(talk)
    if context is None:
        return
    owed = 0
    for number in range(talk.random.randrange(1, MESSAGES)):
        valid: dict[str, Any] = {**talk.random.choice(requests(talk.random, context)), "id": number + 10}
        if talk.random.random() < 0.1:
            await talk.send(spoiled_message(talk.random, valid, talk.fmt), 1)
        else:
            await talk.say(mutated(talk.random, valid) if talk.random.random() < 0.8 else valid)
        owed += 1
    for identity in range(10, 10 + owed):
        await talk.say({"type": "Cancel", "id": 1000 + identity, "target": identity})
    await _paid(talk, 2 * owed)


async def _greet(talk: Talk) -> None:
    await talk.say(hello(talk.name))
    if (welcome := await talk.receive()) is None or welcome["type"] != "Welcome":
        raise Offence(f"a valid Hello was answered with {welcome!r:.200}")


async def _begin(talk: Talk) -> str | None:
    """Greet and make a context; None when there is no room for one."""
    await _greet(talk)
    segments = [{"id": "u", "role": "user", "text": "hello", "pinned": False}]
    await talk.say({"type": "ContextCreate", "id": 1, "member": MEMBER, "segments": segments})
    made = await talk.receive()
    if made is None or made["type"] not in ("ContextInfo", "Error"):
        raise Offence(f"a valid ContextCreate was answered with {made!r:.200}")
    return made["context"] if made["type"] == "ContextInfo" else None


async def _tidy_up(talk: Talk) -> None:
    """Drop what the client made, so that what the pool still holds is its own."""
    await _greet(talk)
    for number, context in enumerate(talk.contexts):
        await talk.say({"type": "ContextDrop", "id": number + 1, "context": context})
    await _paid(talk, len(talk.contexts))


async def _paid(talk: Talk, owed: int) -> None:
    """Every message has its one last answer, or a broken frame has ended the connection."""
    answered = 0
    while answered < owed:
        message = await talk.receive()
        if message is None:
            raise Offence(f"the connection ended with {answered} of {owed} answers and no bad_frame")
        if message.get("code") == "bad_frame":
            await _only_answers(talk)
            return
        answered += message["type"] not in STREAMED


async def _only_answers(talk: Talk) -> None:
    """After a bad_frame: what was asked before may still be answered; then the connection ends."""
    while (message := await talk.receive()) is not None:
        if message.get("code") == "bad_frame":
            raise Offence("a second bad_frame came on one connection")


async def _bytes(talk: Talk) -> None:
    """A spoiled stream in pieces; then nothing more, and the pool must hang up."""
    random = talk.random
    stream, other = (conversation(random, talk.name, talk.fmt) for _ in range(2))
    data = spoiled(random, stream, other)
    while data:
        size = random.choice((1, 7, 100, 10_000, len(data)))
        await talk.send(data[:size], 0)
        data = data[size:]
    talk.no_more()
    while (message := await talk.receive()) is not None:
        if message.get("code") == "bad_frame":
            await _only_answers(talk)
