"""`caldrix doctor`: looks at everything that a pool needs, and says how to mend what is wrong.

The command itself loads no native code: what may die is tried in child processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from caldrix.commands.bars import Line
from caldrix.commands.checks import Check, as_json, fail
from caldrix.commands.checks_build import ask_library, check_build, wanted_version
from caldrix.commands.checks_machine import check_machine
from caldrix.commands.checks_model import checks_of, file_check, speed_check
from caldrix.commands.checks_socket import Found, check_socket
from caldrix.commands.exits import EXIT_DONE, EXIT_FAILED
from caldrix.commands.plain import takes_escapes, visible
from caldrix.commands.processor import cpu_flags, model_name, read_cpuinfo, rebuild_command
from caldrix.commands.served import holds
from caldrix.commands.trial import CHILD, in_child, on_pool
from caldrix.daemon.flags import overlay
from caldrix.engine.api import ServingFlags
from caldrix.models.machine import memory_limit
from caldrix.protocol.paths import default_socket
from caldrix.protocol.text import encodable

COLOURS: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}
NAME_WIDTH: Final = 16
NARROW: Final = 60


def doctor(given: argparse.Namespace, child: Sequence[str] = CHILD) -> int:
    """Gives the exit code: 1 when a check failed. `child` is the command that tries a model out."""
    return asyncio.run(_doctor(given, child))


async def _doctor(given: argparse.Namespace, child: Sequence[str]) -> int:
    checks: list[Check] = []
    show = _show_nothing if given.json else _show
    line = Line() if takes_escapes(sys.stderr) and not given.json else None
    try:
        async for check in _checks(given, child, (lambda words: line.wait(words)) if line else (lambda words: None)):
            checks.append(check)
            if line:
                line.stop()
            show(check)
    finally:
        if line:
            line.stop()
    if given.json:
        sys.stdout.write(json.dumps(encodable(as_json(checks, given.reference)), indent=2) + "\n")
    return EXIT_FAILED if any(check.status == "fail" for check in checks) else EXIT_DONE


async def _checks(given: argparse.Namespace, child: Sequence[str], busy: Callable[[str], None]) -> AsyncIterator[Check]:
    """Every check, as it is made. One that fails in a way nobody thought of is a finding like any other."""
    cpuinfo = read_cpuinfo()
    flags = cpu_flags(cpuinfo)
    path = given.socket or default_socket()
    busy("for the pool")
    found = await _guarded("socket", check_socket(path), lambda check: Found([check], None))
    for check in found.checks:
        yield check
    busy("for the engine's library")
    for check in await _guarded_list("engine", asyncio.to_thread(lambda: check_build(ask_library(), flags))):
        yield check
    machine = asyncio.to_thread(check_machine, model_name(cpuinfo), flags, found.status)
    for check in await _guarded_list("machine", machine):
        yield check
    if given.reference is None:
        return
    busy("for the model")
    async for check in _model_checks(given, child, found, rebuild_command(wanted_version(), flags)):
        yield check
        busy("for the model")


async def _model_checks(
    given: argparse.Namespace, child: Sequence[str], found: Found, rebuild: str
) -> AsyncIterator[Check]:
    pool = found.status
    held = next((m for m in pool.members if m.status == "ready" and holds(m, given.reference)), None) if pool else None
    if held is None or held.member != given.reference:
        for check in (files := await _guarded_list("file", asyncio.to_thread(lambda: [file_check(given.reference)]))):
            yield check
        if held is None and any(check.status == "fail" for check in files):
            return
    flags = overlay(ServingFlags(), given)
    limit = pool.memory.limit_bytes if pool else flags.memory_limit or memory_limit()
    path = given.socket or default_socket()
    used = pool.memory.used_bytes if pool else 0
    records = on_pool(path, held) if held else in_child(given.reference, flags, used, child)
    made: list[dict[str, Any]] = []
    try:
        async for record in records:
            made.append(record)
            for check in checks_of(record, limit, rebuild):
                yield check
        if speed := speed_check(made, on_pool=held is not None):
            yield speed
    except Exception as error:
        yield _broken("model", error)


async def _guarded(name: str, made: Awaitable[Any], instead: Callable[[Check], Any]) -> Any:
    try:
        return await made
    except Exception as error:
        return instead(_broken(name, error))


async def _guarded_list(name: str, made: Awaitable[list[Check]]) -> list[Check]:
    checks: list[Check] = await _guarded(name, made, lambda check: [check])
    return checks


def _broken(name: str, error: Exception) -> Check:
    found = f"the check itself failed: {type(error).__name__}: {error}"
    return fail(name, found, "report it, with this line")


def _show_nothing(check: Check) -> None:
    """The report comes as one object at the end."""


def _show(check: Check) -> None:
    """On a terminal a few lines broken at its width; else one line."""
    if not sys.stdout.isatty():
        fix = f" | fix: {check.fix}" if check.fix else ""
        sys.stdout.write(_one_line(f"{check.status:4}  {check.name}: {check.found}{fix}") + "\n")
    else:
        console = Console(highlight=False, markup=False, color_system="auto" if takes_escapes(sys.stdout) else None)
        for line in lines(check, console.width):
            text = Text(line)
            if line.startswith(check.status):
                text.stylize(COLOURS[check.status], 0, len(check.status))
            console.print(text, soft_wrap=True)
    sys.stdout.flush()


def lines(check: Check, width: int) -> list[str]:
    """The check on a terminal: status, name and what was found, then its fix, each line within `width`. Pure.

    A fix with quotes is a command line: it stays whole, so that it can be copied, and the terminal breaks it.
    """
    indent = " " * (6 if width < NARROW else 7 + NAME_WIDTH)
    name = f"{_one_line(check.name)}: " if width < NARROW else f"{check.name:{NAME_WIDTH}} "
    shown = _wrapped(check.found, f"{check.status:4}  {name}", indent, width)
    if not check.fix:
        return shown
    if '"' in check.fix:
        return [*shown, f"{indent}fix:", _one_line(check.fix)]
    return [*shown, *_wrapped(check.fix, f"{indent}fix: ", indent, width)]


def _wrapped(text: str, first: str, indent: str, width: int) -> list[str]:
    room = max(20, width - 1)
    return textwrap.wrap(_one_line(text), room, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()) if "\n" in text else text)
