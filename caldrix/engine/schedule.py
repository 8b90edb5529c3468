"""Who is served next, and which rows a pass computes. Pure policy; `worker.py` and `batch.py` are the machinery.

A pass holds the next rows of every generation that decodes and one chunk of a prompt (Sarathi-Serve, Agrawal et al.
2024), so a long prompt never stops a running generation for longer than a chunk. Of several prompts the one that has
had the fewest rows goes first (least attained service): a short one is not held up by a long one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from caldrix.engine.backend import MAX_PASS_ROWS, MIN_PASS_ROWS

FEW_ROWS: Final = 2 * MIN_PASS_ROWS
"""So many rows are computed at once, as decoding does; more are a prompt or a long forced run, and come in chunks."""


@dataclass(frozen=True)
class Need:
    """What one generation wants computed: `rows` more, of which it has had `served` since it last asked.

    `stop` rows at the most in one pass, where its next point to save lies so near. `decodes`: its prompt stands.
    """

    rows: int
    served: int = 0
    stop: int | None = None
    decodes: bool = False


def plan_pass(needs: Sequence[Need], chunk: Callable[[int, bool], int]) -> list[int]:
    """How many rows of each need the next pass computes, 0 for those that wait; together at most MAX_PASS_ROWS.

    `chunk(remaining, shared)` sizes a part of a long need. Who decodes gets up to FEW_ROWS in every pass that has room,
    and more only while no prompt wants the chunk: drafts and forced runs hold no prompt up.
    """
    given = [0] * len(needs)
    few = [place for place, need in enumerate(needs) if need.decodes or _short(need)]
    for place in few:
        given[place] = min(needs[place].rows, FEW_ROWS, MAX_PASS_ROWS - sum(given))
    many = [place for place, need in enumerate(needs) if need.rows and place not in few]
    long = many or [place for place in few if needs[place].rows > given[place] > 0]
    if long:
        place = min(long, key=lambda place: (needs[place].served, place))
        room = MAX_PASS_ROWS - sum(given) + given[place]
        shared = len(few) > (place in few)
        given[place] = max(given[place], _part(needs[place], chunk(needs[place].rows, shared), room))
    return given


def _short(need: Need) -> bool:
    return need.rows <= FEW_ROWS and not need.served and (need.stop is None or need.stop >= need.rows)


def _part(need: Need, rows: int, room: int) -> int:
    """So many rows of a long need at most, and no tail under MIN_PASS_ROWS left by a pass that is nearly full."""
    if rows > room:
        rows = max(0, min(room, need.rows - MIN_PASS_ROWS))
    return rows if need.stop is None else min(rows, need.stop)


def next_waiting(waiting: Sequence[str], running: Sequence[str], started: Sequence[str] = ()) -> int:
    """The place in the queue of the job to start, given the client of each waiting and each running job, and of those
    started so far.

    The first in the queue of the client that has the fewest running; of equals the one whose last start is longest ago.
    """

    def claim(place: int) -> tuple[int, int, int]:
        client = waiting[place]
        ago = next((back for back, other in enumerate(reversed(started)) if other == client), len(started))
        return running.count(client), -ago, place

    return min(range(len(waiting)), key=claim)


def order(waiting: Sequence[str], running: Sequence[str], started: Sequence[str] = ()) -> list[int]:
    """The places of the queue in the order in which their jobs would start if nothing else came."""
    left, busy, before, places = list(enumerate(waiting)), list(running), list(started), []
    while left:
        chosen = next_waiting([client for _, client in left], busy, before)
        place, client = left.pop(chosen)
        places.append(place)
        busy.append(client)
        before.append(client)
    return places


def wait_seconds(
    rows_ahead: int, tokens_ahead: int, slots: int, prefill: float | None, decode: float | None
) -> float | None:
    """About how long until a slot is free for a job: the prompt rows and tokens before it, at the measured rates,
    shared by so many slots. Token counts are what may come at the most, so this is an upper estimate. None: not
    measured yet.
    """
    if prefill is None or decode is None:
        return None
    return rows_ahead / prefill + tokens_ahead / decode / max(1, slots)
