"""Several agents at one set of files: no update is lost, and each is told who wrote before it (pitfall E09)."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aerix_server.tools.base import Views
from aerix_server.tools.shared import SharedFiles
from tests.tools.conftest import Bench


def another(bench: Bench, agent: str) -> Bench:
    """A second agent of the same request."""
    return dataclasses.replace(bench, ctx=dataclasses.replace(bench.ctx, agent=agent, views=Views()))


NAMES = {
    "plain": lambda folder: ["f"],
    "symbolic link": lambda folder: [(folder / "link").symlink_to("f"), "f", "link"][1:],
    "linked directory": lambda folder: [(folder / "here").symlink_to("."), "f", "here/f"][1:],
    "hard link": lambda folder: [os.link(folder / "f", folder / "again"), "f", "again"][1:],
}


@pytest.mark.parametrize("kind", NAMES)
async def test_edits_of_one_file_at_one_time_all_land(bench, kind):
    """E09: whatever name each agent has for the file."""
    count = 24
    path = bench.put("f", "".join(f"line {number};\r\n" for number in range(count)))
    names = NAMES[kind](bench.cwd)
    agents = [another(bench, f"a1.c{number}") for number in range(count)]
    await asyncio.gather(
        *(
            agent.call("edit", path=names[number % len(names)], old=f"line {number};", new=f"done {number};")
            for number, agent in enumerate(agents)
        )
    )
    assert path.read_bytes() == b"".join(b"done %d;\r\n" % number for number in range(count))


async def test_of_two_that_make_one_file_the_second_is_told(bench):
    agents = [another(bench, f"a1.c{number}") for number in range(8)]
    calls = (agent.call("write", path="new/f", content=f"{agent.ctx.agent}\n") for agent in agents)
    results = await asyncio.gather(*calls, return_exceptions=True)
    (made,) = [agent for agent, result in zip(agents, results, strict=True) if not isinstance(result, Exception)]
    assert (bench.cwd / "new/f").read_text() == f"{made.ctx.agent}\n"
    assert {str(result) for result in results if isinstance(result, Exception)} == {
        "new/f exists and has 1 line that you have not read; read it first, or use edit"
    }


@pytest.mark.parametrize("how", ["edit", "write"])
async def test_a_write_from_an_old_view_names_the_other_agent(bench, how):
    """E09: A reads, B changes, A writes."""
    path = bench.put("f", "one\n")
    first, second = another(bench, "a1"), another(bench, "a1.c3")
    await first.text("read", path="f")
    await second.text("read", path="f")
    if how == "edit":
        await second.text("edit", path="f", old="one", new="two")
    else:
        await second.text("write", path="f", content="two\n")
    assert await first.refusal("write", path="f", content="three\n") == (
        "f changed since you read it (by a1.c3); read it again, then write"
    )
    assert path.read_text() == "two\n"


async def test_an_edit_after_another_agent_names_it(bench):
    """E09: a targeted edit proceeds, and what the agent has not seen stays unseen: a write is refused after it too."""
    path = bench.put("f", "one\ntwo\n")
    first, second = another(bench, "a1"), another(bench, "a1.c3")
    await first.text("read", path="f")
    await second.text("edit", path="f", old="one", new="1")
    assert await first.text("edit", path="f", old="two", new="2") == (
        "edited f: 1 replacement at line 2 (the file had changed since you read it, by a1.c3)"
    )
    assert "changed since you read it" in await first.refusal("write", path="f", content="one\n2\n")
    assert path.read_text() == "1\n2\n"
    await first.text("read", path="f")
    await first.text("write", path="f", content="all\n")


async def test_a_change_by_no_agent_names_none(bench):
    """E09: the last writer is named only while the file is as it left it."""
    path = bench.put("f", "one\n")
    first, second = another(bench, "a1"), another(bench, "a1.c3")
    await first.text("read", path="f")
    await second.text("edit", path="f", old="one", new="two")
    path.write_text("by the user\n")
    assert await first.refusal("write", path="f", content="x") == (
        "f changed since you read it; read it again, then write"
    )


async def test_a_file_that_is_held_is_waited_for_until_the_end_is_asked(bench):
    bench.put("f", "one\n")
    with bench.ctx.shared.hold(bench.cwd / "f"):
        call = asyncio.ensure_future(bench.error("edit", path="f", old="one", new="two"))
        while not call.done():
            bench.ctx.cancelled.set()
            await asyncio.sleep(0.01)
        assert await call == "cancelled"


def test_a_hold_ends_by_itself(tmp_path):
    shared = SharedFiles()
    with shared.hold(tmp_path / "f"), pytest.raises(TimeoutError, match="another agent holds the file"):  # noqa: SIM117
        with shared.hold(tmp_path / "f", limit_s=0):
            pass
    with shared.hold(tmp_path / "f", limit_s=0):
        pass


def test_the_lock_of_a_file_outlives_its_inode(tmp_path):
    """A write replaces the inode: a lock on that alone would let the third in beside the second."""
    shared, path = SharedFiles(), tmp_path / "f"
    path.write_text("")
    inside: list[int] = []
    most: list[int] = []
    guard = threading.Lock()

    def replace(number: int) -> None:
        with shared.hold(path):
            with guard:
                inside.append(number)
                most.append(len(inside))
            beside = Path(f"{path}.{number}")
            beside.write_text("")
            beside.replace(path)
            with guard:
                inside.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(replace, range(200)))
    assert max(most) == 1
