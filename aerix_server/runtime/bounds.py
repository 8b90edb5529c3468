"""Counters that end in one named exhaustion."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from aerix_server.config.bounds import HARD_LIMIT_HITS, REPEAT_NOTICE, REPEAT_STOP, ROOM_FLOOR_TOKENS
from aerix_server.runtime.ports import Ended


@dataclass
class TurnBudget:
    """The turns of one run of an agent."""

    limit: int
    used: int = 0

    def take(self) -> None:
        """Count one turn, or end the run as budget."""
        if self.exhausted:
            raise Ended(
                "budget", f"all {self.limit} turns were used; allow more with --max-turns or delegation.max_turns"
            )
        self.used += 1

    @property
    def exhausted(self) -> bool:
        return self.used >= self.limit


@dataclass
class HardLimit:
    """How often no room was left for a turn, even after compacting."""

    hits: int = 0

    def hit(self, room: int, largest: str, window: int) -> int:
        """The tokens this turn may take, or the end of the agent. `room` in tokens; `largest` names what fills it."""
        self.hits += 1
        if self.hits >= HARD_LIMIT_HITS or room < ROOM_FLOOR_TOKENS:
            raise Ended(
                "killed",
                f"context floor: no room for a turn: {max(room, 0)} of {window} tokens are left after compacting "
                f"(a turn needs {ROOM_FLOOR_TOKENS}, or more on the second time). The largest segments: {largest}",
            )
        return room


@dataclass
class Repeats:
    """Calls that bring nothing new, by tool and canonical input; outputs do not count.

    A call that was never made before is progress, and what was made until then may be made again: the tests after each
    new edit. So a call that alternates with others, or goes round with them in any order, is found as well.
    """

    _known: set[str] = field(default_factory=set)
    _since: Counter[str] = field(default_factory=Counter)

    def add(self, fingerprint: str) -> int:
        """How many times this call has now been made since the last one that was new, that one included."""
        if fingerprint not in self._known:
            self._known.add(fingerprint)
            self._since.clear()
        self._since[fingerprint] += 1
        return self._since[fingerprint]


def repeat_note(tool: str, times: int) -> str | None:
    """What the model is told at the third time; Ended at the fifth; else None."""
    if times >= REPEAT_STOP:
        raise Ended("killed", f"repeated call: the model made the same {tool} call {times} times over and was stopped")
    if times == REPEAT_NOTICE:
        return (
            f"[repeated call] You have made this same {tool} call {times} times; its result is above and does not "
            "change. Do not call it again: use what it says. Answer with a final, or make a different call. "
            f"After {REPEAT_STOP} times you are stopped."
        )
    return None
