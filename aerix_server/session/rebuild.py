"""A session's events → the root agent to go on with. Pure, but for the reader of spooled texts it is given.

A call whose result never reached the context (the process was ended, the request cancelled) stays open here; the next
request closes it with `error: interrupted` (`runtime.resume`), so that the log and the pool's counts tell of it too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from aerix_server.protocol.events import Role
from aerix_server.runtime.ports import RootState, SegmentRecord

SPOOL_GONE = "error: spool entry gone"
_ROLES: dict[str, Role] = {role: role for role in get_args(Role)}
_NUMBER = re.compile(r"[a-z](\d+)")


def rebuild(events: Iterable[dict[str, Any]], read_spooled: Callable[[str], str | None]) -> RootState:
    """`read_spooled` gives the text of a spool file by its name, None when it is gone.

    Events of other agents, unknown kinds and events that lack what they should have change nothing.
    """
    root = _Root(read_spooled)
    for event in events:
        root.take(event)
    return RootState(
        segments=tuple(root.segments.values()),
        plan=root.plan,
        turns=root.turns,
        calls=root.calls,
        jobs=root.jobs,
        segments_made=root.made,
    )


@dataclass
class _Root:
    """The state while the events go by. `unheld` is the highest call of a turn whose segment is not yet seen."""

    read_spooled: Callable[[str], str | None]
    agent: str = "a1"
    segments: dict[str, SegmentRecord] = field(default_factory=dict)
    plan: str = ""
    turns: int = 0
    calls: int = 0
    unheld: int = 0
    jobs: int = 0
    made: int = 0

    def take(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "agent.spawn" and event.get("kind") == "root":
            self.agent = str(event.get("agent", self.agent))
        if event.get("agent") == self.agent and (handler := _HANDLERS.get(kind)):
            handler(self, event)

    def segment(self, event: dict[str, Any]) -> None:
        id_, op, role = event.get("id"), event.get("op"), _ROLES.get(str(event.get("role")))
        if not isinstance(id_, str):
            return
        self.made = max(self.made, _number(id_))
        if op == "remove":
            self.segments.pop(id_, None)
        elif op in ("append", "replace") and role:
            if role == "assistant":
                self.calls = max(self.calls, self.unheld)
            label = str(event.get("label", ""))
            self.segments[id_] = SegmentRecord(id_, role, label, self._text(event), bool(event.get("pinned")))

    def _text(self, event: dict[str, Any]) -> str:
        text = event.get("text")
        if isinstance(text, str):
            return text
        reference = event.get("text_ref")
        found = self.read_spooled(reference) if isinstance(reference, str) else ""
        return SPOOL_GONE if found is None else found

    def message(self, event: dict[str, Any]) -> None:
        """A turn counts as soon as it is told; its calls only once its segment is: before that none of them ran."""
        if isinstance(turn := event.get("turn"), int):
            self.turns = max(self.turns, turn)
        if event.get("role") == "assistant":
            calls = [call for call in _items(event, "calls") if isinstance(call, dict)]
            self.unheld = max((_number(call.get("id")) for call in calls), default=0)

    def context_op(self, event: dict[str, Any]) -> None:
        if event.get("op") in ("pin", "unpin"):
            for id_ in _items(event, "ids"):
                if isinstance(id_, str) and id_ in self.segments:
                    self.segments[id_] = replace(self.segments[id_], pinned=event["op"] == "pin")

    def plan_event(self, event: dict[str, Any]) -> None:
        if event.get("op") == "write" and event.get("decision") != "abort":
            self.plan = str(event.get("text", ""))

    def job(self, event: dict[str, Any]) -> None:
        self.jobs = max(self.jobs, _number(event.get("job")))


_HANDLERS: dict[str, Callable[[_Root, dict[str, Any]], None]] = {
    "segment": _Root.segment,
    "message": _Root.message,
    "context.op": _Root.context_op,
    "plan": _Root.plan_event,
    "job": _Root.job,
}


def _items(event: dict[str, Any], name: str) -> list[Any]:
    value = event.get(name)
    return value if isinstance(value, list) else []


def _number(id_: object) -> int:
    """The number of an id such as s12; 0 for anything else."""
    match = _NUMBER.fullmatch(id_) if isinstance(id_, str) else None
    return int(match[1]) if match else 0
