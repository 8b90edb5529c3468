"""`aerix pool status`."""

from __future__ import annotations

from typing import Any

from aerix_cli.connect import connect
from aerix_cli.render import counted
from aerix_cli.result import json_line
from aerix_cli.terminal import write_out
from aerix_cli.texts import one_line
from aerix_server.protocol import messages as m
from aerix_server.protocol.outcomes import EXIT_POOL

GIGABYTE = 1_000_000_000


async def pool_status(as_json: bool) -> int:
    """0 when a pool answers, 4 when none does."""
    async with connect() as server:
        found = await server.call("aerix/pool/status", m.Empty(), m.PoolStatusResult)
    text = json_line(found.model_dump(by_alias=True)) if as_json else "\n".join(status_lines(found)) + "\n"
    await write_out(text)
    return 0 if found.running else EXIT_POOL


def status_lines(found: m.PoolStatusResult) -> list[str]:
    """The pool, its memory and its members, a line each."""
    if not found.running or found.status is None:
        return [f"no pool answers on {one_line(found.socket, 4096)}; the next request starts one"]
    status = found.status
    pool, memory = status.get("pool") or {}, status.get("memory") or {}
    lines = [
        f"pool {pool.get('version')} (pid {pool.get('pid')}) on {found.socket}",
        f"memory {_gigabytes(memory.get('used_bytes'))} of {_gigabytes(memory.get('limit_bytes'))} · "
        f"{counted(status.get('connections', 0), 'connection')} · {counted(status.get('contexts', 0), 'context')}",
    ]
    return [one_line(line, 4096) for line in lines + [_member(member) for member in status.get("members") or []]]


def _member(member: dict[str, Any]) -> str:
    queue = member.get("queue") or {}
    line = (
        f"{member.get('member')}: {member.get('model')} · {member.get('status')} · {member.get('lane')} · "
        f"window {member.get('window')} · {queue.get('running', 0)} running, {queue.get('waiting', 0)} waiting"
    )
    return f"{line} · {member['error']}" if member.get("error") else line


def _gigabytes(count: Any) -> str:
    return f"{count / GIGABYTE:.1f} GB" if isinstance(count, int | float) else "?"
