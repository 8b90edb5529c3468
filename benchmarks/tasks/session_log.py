"""What a session's log tells of a run: its figures, and its turns in short. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.tasks.record import Figures

Events = Sequence[Mapping[str, Any]]
SHORT: Final = 160
"""Characters of a thought or a reason in the trace."""
LONG: Final = 400
"""Of an input or a result, whose end tells as much as its beginning."""


def read_log(data: Path) -> list[dict[str, Any]]:
    """Every event of every session under an XDG data folder, in order; a line cut short by a kill is left out."""
    events: list[dict[str, Any]] = []
    for path in sorted((data / "aerix" / "sessions").glob("*/*.jsonl")):
        for one in path.read_bytes().split(b"\n"):
            try:
                value = json.loads(one)
            except ValueError:
                continue
            if isinstance(value, dict) and "type" in value:
                events.append(value)
    return events


def figures(events: Events) -> Figures:
    """Counted over the root and every piece."""
    messages = [event for event in events if event["type"] == "message"]
    turns = [message for message in messages if message["role"] == "assistant"]
    results = [message["result"] for message in messages if message["role"] == "tool"]
    usages = _usages(events, turns)
    return Figures(
        turns=sum("error" not in turn for turn in turns),
        calls=len(results),
        errors=sum(bool(result["error"]) for result in results),
        reasks=sum("error" in turn for turn in turns),
        read=sum(usage.get("prompt_tokens", 0) for usage in usages),
        resumed=sum(usage.get("recomputed_from", 0) for usage in usages),
        written=sum(usage.get("completion_tokens", 0) for usage in usages),
        compactions=sum(event["type"] == "compaction" and not event.get("blocked") for event in events),
        pieces=sum(event["type"] == "agent.spawn" and event.get("kind") == "implementer" for event in events),
        verdicts=tuple(str(event.get("verdict")) for event in events if event["type"] == "verify"),
    )


def trace(events: Events) -> Iterator[str]:
    """The turns in short, a line for each thought, call, result and end."""
    for event in events:
        if told := _told(event):
            yield told


def short(value: Any, chars: int = SHORT) -> str:
    """In one line of at most `chars`."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = " ⏎ ".join(part.strip() for part in text.split("\n") if part.strip())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"


def both_ends(value: Any, chars: int = LONG) -> str:
    """In one line of at most `chars`, the middle left out."""
    line = short(value, 1 << 30)
    half = (chars - 3) // 2
    return line if len(line) <= chars else f"{line[:half]} … {line[-half:]}"


def _usages(events: Events, turns: Events) -> list[Mapping[str, int]]:
    """The request's sum, which has routing and every agent in it; of one that was killed, what its turns tell."""
    ends = [event["usage"] for event in events if event["type"] == "request.end"]
    return ends or [turn["usage"] for turn in turns if turn.get("usage")]


def _told(event: Mapping[str, Any]) -> str | None:
    agent = event.get("agent", "")
    match event["type"]:
        case "route":
            return f"route: {event['choice']}"
        case "agent.spawn" if event.get("kind") != "root":
            return f"{agent} starts as {event['kind']}: {short(event.get('brief') or '')}"
        case "message":
            return _message(agent, event)
        case "compaction":
            return f"{agent} compacted: {event['before']} to {event['after']} tokens"
        case "verify":
            return f"{agent} verdict on {event['piece']}: {event['verdict']}: {short(event['reason'])}"
        case "agent.end":
            return f"{agent} ends: {event['outcome']}{_after(event.get('reason'))}"
        case "request.end":
            return f"request ends: {event['outcome']}{_after(event.get('reason'))}"
    return None


def _message(agent: str, event: Mapping[str, Any]) -> str:
    head = f"{agent} turn {event['turn']}"
    if event["role"] == "tool":
        result = event["result"]
        kind = "error" if result["error"] else "result"
        return f"{head}, {result['tool']} {result['call']} {kind}: {both_ends(result['text'])}"
    if event["role"] == "user":
        return f"{head}, note: {short(event.get('text') or '')}"
    if "error" in event:
        return f"{head}, asked again: {short(event['error'])} – it had said: {short(event.get('raw') or '')}"
    calls = [f"{call['tool']} {call['id']} {both_ends(call['input'])}" for call in event.get("calls") or []]
    said = "; ".join(calls) if calls else f"final: {short(event.get('final'))}"
    return f"{head}: {short(event.get('thought') or '')} → {said}"


def _after(reason: str | None) -> str:
    return f": {short(reason)}" if reason else ""
