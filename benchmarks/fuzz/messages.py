"""Valid requests, and what is made of them: fields dropped, renamed, of other types, huge, nested. Pure, by a seed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

Payload = dict[str, Any]

MEMBER: Final = "main"
MOST_HOLDERS: Final = 200
MOST_BYTES: Final = 2_000_000
"""About; what an attacker makes in a moment, and well within a frame."""
NEVER: Final = ("PoolStop", "MemberUnload")
"""Types that are no attack but a wish: the first ends the pool, the second takes away what the honest client uses."""
_ODD_TEXTS: Final = (
    "",
    "\0",
    "é" * 3,
    "\U0001f600",
    "<|im_end|>",
    "x" * 257,
    "\u202e",
    "main",
    "u",
    "user",
    "Generate",
)
_ODD_NUMBERS: Final = (0, -1, 1, 2**31, 2**53, 2**63, 2**64 - 1, 2**64, -(2**63), 0.5, -0.0, 1e308, float("inf"))
_HUGE_BYTES: Final = (5_000, 70_000, 70_000, 300_000, 1_000_000)
_DEPTHS: Final = (10, 60, 62, 63, 64, 65, 500)
_SCHEMAS: Final[tuple[Any, ...]] = (
    True,
    {},
    {"type": "object", "properties": {"a": {"$ref": "#"}}},
    {"$ref": "#/nowhere"},
    {"type": "nope"},
    {"enum": ["a", 1, None]},
    {"type": "string", "pattern": "(a+)+$"},
    {"type": "array", "items": {"type": "integer"}, "maxItems": 10**9},
)


def requests(random: Random, context: str) -> list[Payload]:
    """One valid request of each kind that may be sent here; `context` is one that stands."""
    said = {
        "id": "n",
        "role": random.choice(("user", "system", "assistant")),
        "text": "some words " * 5,
        "pinned": False,
    }
    edits = [{"op": "append", "segment": said}, {"op": "pin", "id": "u", "pinned": True}]
    return [
        {"type": "PoolStatus"},
        {"type": "ContextCreate", "member": MEMBER, "segments": [said, {**said, "id": "m"}]},
        {"type": "ContextEdit", "context": context, "version": 1, "edits": edits},
        {"type": "ContextFork", "context": context, "until": "u"},
        {"type": "ContextShow", "context": context, "text": True},
        {"type": "ContextDrop", "context": "x0"},
        {"type": "MemberLoad", "model": "/no/such/file.gguf", "member": "m2", "flags": ["--window", "99"]},
        {"type": "Cancel", "target": random.randrange(20)},
        _generate(random, context),
    ]


def _generate(random: Random, context: str) -> Payload:
    constraint: list[Payload | None] = [
        None,
        {"kind": "OneOf", "options": ["yes", "no", "maybe"]},
        {"kind": "Json", "schema": random.choice(_SCHEMAS)},
        {"kind": "Regex", "pattern": random.choice(("[a-z]{3}", "(", "a{99999}", "\\d+"))},
        {"kind": "Lark", "grammar": random.choice(('start: "a"', "start: nothing", "start: start", ""))},
    ]
    return {
        "type": "Generate",
        "context": context,
        "max_new_tokens": random.choice((1, 2, 4)),
        "constraint": random.choice(constraint),
        "sampling": {"temperature": random.choice((0, 1.0)), "seed": 1, "top_k": 5},
        "logprobs": random.choice((None, 0, 3)),
        "append": random.choice((None, {"id": "out", "pinned": False})),
        "draft": "auto",
    }


def mutated(random: Random, message: Payload) -> Payload:
    """`message` with one to three faults, at any depth; never of NEVER, never over MOST_BYTES."""
    changed: Payload = _copy(message)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        holder = random.choice(_holders(changed))
        random.choice(_FAULTS)(random, holder)
    if _is_too_large(changed):  # a repeated list of repeated lists has no end
        return {"type": "Nope", "x": _huge(random)}
    if changed.get("type") in NEVER:
        changed["type"] = "PoolStatus"
    return changed


def _is_too_large(message: Payload) -> bool:
    waiting: list[Any] = [message]
    weight = 0
    while waiting and weight <= MOST_BYTES:
        value = waiting.pop()
        weight += len(value) if isinstance(value, str) else 4
        if isinstance(value, dict | list):
            weight += 4 * len(value)
            waiting.extend(value.values() if isinstance(value, dict) else value)
    return weight > MOST_BYTES


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _holders(value: Any) -> list[Any]:
    """The first maps and lists that hold something, from the outside in."""
    found: list[Any] = []
    waiting = deque([value])
    while waiting and len(found) < MOST_HOLDERS:
        value = waiting.popleft()
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        if inner:
            found.append(value)
            waiting.extend(inner[:MOST_HOLDERS])
    return found or [{}]


def _keys(holder: Any) -> list[Any]:
    return list(holder) if isinstance(holder, dict) else list(range(len(holder)))


def _drop(random: Random, holder: Any) -> None:
    if keys := _keys(holder):
        del holder[random.choice(keys)]


def _replace(value: Callable[[Random], Any]) -> Callable[[Random, Any], None]:
    def change(random: Random, holder: Any) -> None:
        if keys := _keys(holder):
            holder[random.choice(keys)] = value(random)

    return change


def _repeat(random: Random, holder: Any) -> None:
    """A list's items again and again; a map's value under another name."""
    if isinstance(holder, list):
        holder *= random.choice((2, 2, 300)) if len(holder) < 100 else 2
    elif holder:
        holder[random.choice(_ODD_TEXTS)] = holder[random.choice(_keys(holder))]


def _odd(random: Random) -> Any:
    kinds: tuple[Any, ...] = (
        None,
        True,
        [],
        {},
        random.choice(_ODD_TEXTS),
        random.choice(_ODD_NUMBERS),
        [None],
        {"a": 1},
    )
    return random.choice(kinds)


def _huge(random: Random) -> str:
    return random.choice(("a", "ab ", "é", "0")) * (random.choice(_HUGE_BYTES) // 3)


def _long(random: Random) -> list[Any]:
    return [random.choice(("a", 1, None))] * random.choice((100, 5_000, 30_000))


def _nested(random: Random) -> Any:
    value: Any = 0
    for _ in range(random.choice(_DEPTHS)):
        value = [value] if random.random() < 0.5 else {"a": value}
    return value


_FAULTS: Final = (
    _drop,
    _drop,
    _repeat,
    *[_replace(_odd)] * 4,
    _replace(_nested),
    _replace(_huge),
    _replace(_long),
)
