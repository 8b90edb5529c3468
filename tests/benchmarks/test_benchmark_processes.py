"""The benchmark's other processes: how they start, why they do not, and the bare loop on a real model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.pool import prompts
from benchmarks.pool.bare import decode, mask
from benchmarks.pool.child import Child, render
from benchmarks.pool.errors import NotMeasured
from benchmarks.pool.llama_server import find_build
from benchmarks.pool.process import started
from caldrix.models.refs import resolve


async def never() -> bool:
    return False


async def at_once() -> bool:
    return True


async def test_a_process_that_dies_gives_its_last_words_as_the_reason(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no such model'); raise SystemExit(3)"]
    with pytest.raises(NotMeasured, match="exited with 3: no such model"):
        async with started(command, {}, tmp_path / "out", never):
            pass


async def test_a_process_gets_its_environment_and_ends_on_leaving(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['MARK'], flush=True); sys.stdin.read(); import signal; signal.pause()"

    async def said() -> bool:
        return "here" in (tmp_path / "out").read_text("utf-8")

    async with started([sys.executable, "-c", code], {"MARK": "here"}, tmp_path / "out", said) as process:
        assert process.returncode is None
    assert process.returncode == -15


async def test_a_process_that_has_ended_by_itself_is_left_alone(tmp_path: Path) -> None:
    async with started([sys.executable, "-c", ""], {}, tmp_path / "out", at_once) as process:
        await process.wait()
    assert process.returncode == 0


async def test_without_any_llama_server_there_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "xllamacpp", raising=False)
    with pytest.raises(NotMeasured, match="--llama-server PATH"):
        await find_build(None)


async def test_a_given_llama_server_tells_its_version(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho 'version: 7 (abc)' >&2\necho noise\n", "utf-8")
    program.chmod(0o755)
    build = await find_build(program)
    assert build.command == (str(program),)
    assert build.version == "llama-server, version: 7 (abc)"


async def test_a_program_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(NotMeasured, match="cannot be started"):
        await find_build(tmp_path / "none")


@pytest.mark.model
async def test_the_bare_loop_repeats_itself_and_the_mask_follows_a_real_turn() -> None:
    model = resolve("smollm2-instruct")
    schema = prompts.turn_constraint().schema_
    assert isinstance(schema, dict)
    child = Child()
    try:
        (ids,) = await child.call(render, model, [[("user", "Count from one to ten.")]])
        first = await child.call(decode, model, 1, 256, ids, 8)
        again = await child.call(decode, model, 1, 256, ids, 8)
        masked = await child.call(mask, model, 1, 256, schema, prompts.REAL_TURN)
        with pytest.raises(ValueError, match="forbids token"):
            await child.call(mask, model, 1, 256, schema, "no turn")
    finally:
        child.close()
    assert len(first.ids) == 8
    assert first.ids == again.ids
    assert first.seconds > 0
    assert len(masked.fill_us) == len(masked.argmax_us) > 50
