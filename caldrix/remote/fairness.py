"""Who is next: clients take turns, however many requests one of them sends. Pure, and not for two threads at once."""

from __future__ import annotations

from caldrix.engine.jobs import Job


class FairQueue:
    """Each job belongs to a round, and a client has one job in each; within a round the order is that of arrival."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Job]] = []
        self._last_round: dict[str, int] = {}
        self._round = 0
        self._arrived = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, job: Job) -> None:
        turn = max(self._round, self._last_round.get(job.client, -1) + 1)
        self._last_round[job.client] = turn
        self._arrived += 1
        self._waiting.append((turn, self._arrived, job))
        self._waiting.sort(key=lambda entry: entry[:2])

    def take(self) -> Job | None:
        """The next job, which leaves the queue."""
        if not self._waiting:
            return None
        self._round, _, job = self._waiting.pop(0)
        # Whoever waits no more begins again with the present round.
        self._last_round = {name: turn for name, turn in self._last_round.items() if turn >= self._round}
        return job

    def remove(self, job: Job) -> bool:
        """Whether it was waiting."""
        before = len(self._waiting)
        self._waiting = [entry for entry in self._waiting if entry[2] is not job]
        if len(self._waiting) == before:
            return False
        turns = [turn for turn, _, other in self._waiting if other.client == job.client]
        self._last_round[job.client] = max(turns, default=self._round)
        return True

    def place(self, job: Job) -> int | None:
        """1 for the next job; None when it does not wait."""
        places = (number for number, entry in enumerate(self._waiting, start=1) if entry[2] is job)
        return next(places, None)

    def jobs(self) -> list[Job]:
        return [job for _, _, job in self._waiting]
