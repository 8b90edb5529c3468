"""The background commands of one agent, and whatever its foreground ones left running."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aerix_server.config.bounds import KILL_GRACE_S
from aerix_server.protocol.events import JobEvent
from aerix_server.tools.base import Leftover
from aerix_server.tools.bash import body, on_loop
from aerix_server.tools.command import Command, Ended

KILL_WAIT_S: Final = KILL_GRACE_S + 3.0
_KILL_POLL_S = 0.02


@dataclass
class Job:
    id: str
    text: str
    deadline: float
    command: Command
    ended: Ended | None = None
    taken: bool = False


class Jobs:
    """Starts jobs j1, j2, …; each is reported once by an event and given out once by `take_finished`.

    `first` is the highest number used before. All methods are called on the event loop's thread.
    """

    def __init__(
        self,
        agent: str,
        cwd: Path,
        spool_dir: Path,
        emit: Callable[[JobEvent], None],
        first: int = 0,
        request: str | None = None,
    ) -> None:
        self._agent = agent
        self._request = request
        self._cwd = cwd
        self._spool_dir = spool_dir
        self._emit = emit
        self._count = first
        self._jobs: dict[str, Job] = {}
        self._leftovers: list[Leftover] = []
        self._news = asyncio.Event()

    async def start(self, command: str, timeout_s: float) -> str:
        """Start it and give its id. Raises ToolError when it cannot be started."""
        seconds = max(1, round(timeout_s))
        job_id = f"j{self._count + 1}"

        def take(ended: Ended) -> None:
            self._finish(job_id, ended)

        # Started here, not in a thread: it takes a millisecond, and so the job is known before it can end.
        report = on_loop(asyncio.get_running_loop(), take)
        started = Command(command, self._cwd, seconds, self._spool_dir, report)
        self._count += 1
        self._jobs[job_id] = Job(job_id, command, time.monotonic() + seconds, started)
        self._event(job_id, "start", command=command)
        return job_id

    def keep(self, leftover: Leftover) -> None:
        self._leftovers = [kept for kept in self._leftovers if not kept.gone()]
        self._leftovers.append(leftover)

    def running(self) -> list[str]:
        """Ids of the jobs that have not ended."""
        return [job.id for job in self._jobs.values() if job.ended is None]

    def longest_deadline(self) -> float | None:
        """When the last running job times out, by time.monotonic(); None when no job runs."""
        return max((job.deadline for job in self._jobs.values() if job.ended is None), default=None)

    def take_finished(self) -> list[tuple[str, str]]:
        """(id, text) of each job that ended since the last call; the text begins `[job jN exited N]`."""
        taken: list[tuple[str, str]] = []
        for job in self._jobs.values():
            if job.ended is not None and not job.taken:
                job.taken = True
                taken.append((job.id, _text(job.id, job.ended)))
        self._news.clear()
        return taken

    async def wait_any(self, timeout_s: float | None = None) -> list[tuple[str, str]]:
        """Wait until a job has ended, `timeout_s` have passed or none runs; then as `take_finished`."""
        if self.running() and not self._untaken():
            self._news.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            except TimeoutError:
                pass
        return self.take_finished()

    def whole(self, job_id: str) -> Path | None:
        """The file with all of a finished job's output, where its text does not hold all."""
        ended = self._jobs[job_id].ended
        return ended.printed.whole if ended else None

    async def kill_all(self, wait_s: float = KILL_WAIT_S) -> tuple[list[str], list[Leftover]]:
        """End all that runs and wait `wait_s` for it; gives what could not be ended, each as `pid N (name)`, and what
        is still being ended."""
        kept: list[Leftover] = [job.command for job in self._jobs.values()]
        kept = [one for one in [*kept, *self._leftovers] if not one.gone()]
        for one in kept:
            one.end()
        deadline = time.monotonic() + wait_s
        # The threads that end them set no event of this loop, and the loop has nothing else to wait for here.
        while (self.running() or not all(one.gone() for one in kept)) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_KILL_POLL_S)
        self._leftovers = []
        return [process for one in kept for process in one.unended()], [one for one in kept if not one.gone()]

    def _untaken(self) -> bool:
        return any(job.ended is not None and not job.taken for job in self._jobs.values())

    def _finish(self, job_id: str, ended: Ended) -> None:
        job = self._jobs[job_id]
        job.ended = ended
        self._news.set()
        if ended.how == "cancelled":
            self._event(job_id, "killed")
        else:
            self._event(job_id, "exit", code=_code(ended))

    def _event(self, job_id: str, event: str, command: str | None = None, code: int | None = None) -> None:
        fields = {"agent": self._agent, "request": self._request, "job": job_id, "event": event}
        self._emit(JobEvent.model_validate({**fields, "command": command, "code": code}))


def _code(ended: Ended) -> int:
    """An exit status; as a shell tells a signal (128 + N), and 124 for a timeout as timeout(1) does."""
    return {"exit": ended.code, "signal": 128 + ended.code, "timeout": 124}.get(ended.how, ended.code)


def _text(job_id: str, ended: Ended) -> str:
    how = f"exited {ended.code}" if ended.how == "exit" else ended.status()[1:-1]
    return f"[job {job_id} {how}]\n{body(ended)}".rstrip("\n")
