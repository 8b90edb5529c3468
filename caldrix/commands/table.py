"""A pool's status as lines for a person. Pure."""

from __future__ import annotations

from caldrix.protocol.messages import Member, PoolStatus

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def status_lines(status: PoolStatus) -> list[str]:
    """The pool, its memory, then each member on a line or two."""
    idle = "never" if not status.idle_timeout_s else f"after {status.idle_timeout_s:g} s"
    memory = f"{in_units(status.memory.used_bytes)} of {in_units(status.memory.limit_bytes)}"
    lines = [
        f"pool     {status.pool.version}, process {status.pool.pid}, since {status.pool.started_at}",
        f"clients  {status.connections} connected, {status.contexts} contexts; exits when idle: {idle}",
        f"memory   {memory}",
    ]
    for member in status.members:
        lines += _member_lines(member)
    return lines if status.members else [*lines, "no member is loaded"]


def in_units(size: int) -> str:
    """1536 → `1.5 KiB`."""
    value = float(size)
    for unit in UNITS[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {UNITS[-1]}"


def _member_lines(member: Member) -> list[str]:
    head = f"{member.member}  {member.model}, {member.status}"
    if member.status == "loading":
        return [head]
    needs = f"{in_units(member.footprint_bytes)} + {in_units(member.context_budget_bytes)} for prefixes"
    size = f"window {member.window}, {needs}"
    queue = f"{member.queue.running} running, {member.queue.waiting} waiting"
    store = f"store {member.store.entries} prefixes, {member.store.hits} hits, {member.store.misses} misses"
    rates = f"prefill {_rate(member.rates.prefill_tok_s)}, decode {_rate(member.rates.decode_tok_s)}"
    lines = [head, f"  {member.lane}, {member.threads} threads, {size}", f"  {queue}; {store}; {rates}"]
    return lines + [f"  {note}" for note in member.notes] + ([f"  error: {member.error}"] if member.error else [])


def _rate(tokens_per_second: float | None) -> str:
    return "not measured" if tokens_per_second is None else f"{tokens_per_second:.1f} tok/s"
