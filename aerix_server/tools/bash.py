"""bash: runs a shell command in the working directory, to its end or in the background."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from pydantic import Field

from aerix_server.config.bounds import BASH_TIMEOUT_MAX_S, BASH_TIMEOUT_S, KILL_GRACE_S
from aerix_server.protocol.events import Check
from aerix_server.tools.base import Output, Tool, ToolContext, ToolError, ToolInput
from aerix_server.tools.command import Command, Ended

_END_SLACK_S = KILL_GRACE_S + 10.0
LEFT_RUNNING = "[processes that it started are still running; they are ended with the agent]"


class BashInput(ToolInput):
    command: str
    timeout_secs: int = Field(BASH_TIMEOUT_S, ge=1, le=BASH_TIMEOUT_MAX_S)
    background: bool = False


class Bash(Tool[BashInput]):
    name = "bash"
    description = (
        "Runs command with sh in the working directory, without input; shows its output and how it ended. "
        "background gives a job id at once and the output when it exits."
    )
    input_model = BashInput

    async def run(self, call: BashInput, ctx: ToolContext) -> Output:
        if call.background:
            job = await ctx.jobs.start(call.command, call.timeout_secs)
            return Output(f"started job {job}; its output comes when it exits")
        ended = await _foreground(call, ctx)
        checks = (Check(command=call.command, exit=ended.code),) if ended.how == "exit" else ()
        return Output(f"{body(ended)}{ended.status()}", checks=checks, whole=ended.printed.whole)


def body(ended: Ended) -> str:
    """The output and, on lines of their own, what is told beside it."""
    notes = [LEFT_RUNNING] if ended.left_running else []
    if ended.unended:
        notes.append(f"[could not be ended: {', '.join(ended.unended)}]")
    return ended.printed.text + "".join(f"{note}\n" for note in notes)


def on_loop(loop: asyncio.AbstractEventLoop, take: Callable[[Ended], None]) -> Callable[[Ended], None]:
    """`take`, to be called from another thread; nobody takes anything once the loop is closed."""

    def report(ended: Ended) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(take, ended)

    return report


async def _foreground(call: BashInput, ctx: ToolContext) -> Ended:
    """Run it and wait. However the wait ends, nothing of the command is left without an owner."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Ended] = loop.create_future()

    def settle(ended: Ended) -> None:
        if not result.done():
            result.set_result(ended)

    # Started on this thread: it takes a millisecond, and no cancel can come between the start and the owner.
    report = on_loop(loop, settle)
    command = Command(call.command, ctx.cwd, call.timeout_secs, ctx.spool_dir, report, ctx.cancelled.is_set)
    try:
        async with asyncio.timeout(call.timeout_secs + _END_SLACK_S):
            ended = await result
    except TimeoutError:
        command.end()
        raise ToolError("the command did not end, and could not be ended") from None
    except asyncio.CancelledError:
        command.end()
        raise
    finally:
        if not command.gone():
            ctx.jobs.keep(command)
    return ended
