"""The help of the settings `assist` in a request: what each turn's constraint allows, and when there is none."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import pytest

from aerix_server.config.bounds import KNOWN_PATHS, UNIQUE_TOTAL_CHARS
from aerix_server.pool.port import Generated, GenerationItem, GenerationOptions, PoolFailed, TokenLogprob
from aerix_server.protocol.events import Notice
from tests.runtime.grammar_kit import accepts, schema_accepts
from tests.runtime.loop_kit import Kit, call, final, turn
from tests.runtime.scripted_pool import ScriptedPool

Make = Callable[..., Kit]
ALL = frozenset({"OneOf", "Json", "Regex", "Lark"})
ON = {"assist": {"known_paths": True, "unique_old": True}}


def allows(asked: GenerationOptions, text: str) -> bool:
    assert asked.constraint is not None
    if asked.constraint["kind"] == "Lark":
        return accepts(asked.constraint["grammar"], text)
    return schema_accepts(asked.constraint["schema"], text)


def edit(path: str, old: str) -> str:
    return turn(call("edit", path=path, old=old, new="new"))


@pytest.fixture
def run(kit: Make) -> Callable[..., Kit]:
    def make(*script: Any, settings: dict[str, Any] = ON, constraints: frozenset[str] = ALL) -> Kit:
        return kit(*script, settings=settings, constraints=constraints)

    return make


async def test_each_turn_is_held_to_the_files_as_they_are_then(run: Make) -> None:
    first = turn(call("write", path="b.py", content="b = 1\n"), call("read", path="a.py"))
    kit = run(first, edit("a.py", "x = 1\n"), final())
    (kit.cwd / "a.py").write_text("x = 1\ny = 1\n")
    assert (await kit.run()).outcome == "final"
    one, two, three = kit.pool.asked
    assert allows(one, turn(call("read", path="a.py"))) and not allows(one, turn(call("read", path="b.py")))
    assert allows(one, edit("a.py", "z")), "what was not read is edited freely"
    assert allows(two, turn(call("read", path="b.py")))
    assert allows(two, edit("a.py", "y = 1")) and not allows(two, edit("a.py", "z"))
    assert allows(three, edit("a.py", "newy")) and not allows(three, edit("a.py", "x"))


@pytest.mark.parametrize(
    ("settings", "constraints", "path", "old"),
    [
        ({}, ALL, True, True),
        ({"known_paths": False}, ALL, False, True),
        ({"unique_old": False}, ALL, True, False),
        ({"known_paths": False, "unique_old": False}, ALL, False, False),
        ({}, ALL - {"Lark"}, False, False),
    ],
)
async def test_each_help_is_switched_by_itself(
    run: Make, settings: dict[str, bool], constraints: frozenset[str], path: bool, old: bool
) -> None:
    kit = run(
        turn(call("read", path="a.py")),
        final(),
        settings={"assist": {**ON["assist"], **settings}},
        constraints=constraints,
    )
    (kit.cwd / "a.py").write_text("x = 1\n")
    await kit.run()
    asked = kit.pool.asked[-1]
    assert allows(asked, turn(call("read", path="no.py"))) is not path
    assert allows(asked, edit("a.py", "z")) is not old
    assert asked.constraint is not None and asked.constraint["kind"] == ("Lark" if path or old else "Json")


async def test_a_member_without_constraints_has_none(run: Make) -> None:
    kit = run(final(), constraints=frozenset())
    await kit.run()
    assert kit.pool.asked[0].constraint is None


async def test_too_many_paths_are_told_once_and_the_old_of_an_edit_is_held_all_the_same(run: Make) -> None:
    kit = run(turn(call("read", path="a.py")), turn(call("repo_map")), final())
    for number in range(KNOWN_PATHS):
        (kit.cwd / f"{number}.txt").touch()
    (kit.cwd / "a.py").write_text("x = 1\n")
    await kit.run()
    assert allows(kit.pool.asked[-1], turn(call("read", path="no.py")))
    assert not allows(kit.pool.asked[-1], edit("a.py", "z"))
    told = [event.text for event in kit.of(Notice) if "assist" in event.text]
    assert len(told) == 1 and "known_paths" in told[0] and str(KNOWN_PATHS) in told[0]


async def test_a_constraint_that_the_pool_refuses_is_asked_again_without_the_help(run: Make) -> None:
    refused = PoolFailed("constraint_invalid", "the grammar is too large")
    kit = run(refused, turn(call("repo_map")), final())
    result = await kit.run()
    assert (result.outcome, result.turns) == ("final", 2)
    kinds = [asked.constraint["kind"] for asked in kit.pool.asked if asked.constraint]
    assert kinds == ["Lark", "Json", "Json"]
    assert [event.text for event in kit.of(Notice) if "the grammar is too large" in event.text]


async def test_a_refusal_of_the_plain_constraint_ends_the_agent(run: Make) -> None:
    kit = run(PoolFailed("constraint_invalid", "no"), settings={"assist": {"known_paths": False, "unique_old": False}})
    result = await kit.run()
    assert result.outcome == "failed" and len(kit.pool.asked) == 1


async def test_files_that_an_edit_would_refuse_are_left_free(run: Make) -> None:
    names = ["mark.py", "bytes.py", "gone.py", "long.py", "crlf.py"]
    kit = run(turn(*(call("read", path=name) for name in names)), turn(call("bash", command="rm gone.py")), final())
    (kit.cwd / "mark.py").write_text("a = 1\n\ufeffb = 1\n")
    (kit.cwd / "bytes.py").write_bytes(b"a = '\xff'\n")
    (kit.cwd / "gone.py").write_text("a = 1\n")
    (kit.cwd / "long.py").write_text("a = 1\n" * UNIQUE_TOTAL_CHARS)
    (kit.cwd / "crlf.py").write_bytes(b"a = 1\r\nb = 1\r\n")
    await kit.run()
    asked = kit.pool.asked[-1]
    assert all(allows(asked, edit(name, "z")) for name in ("mark.py", "bytes.py", "long.py"))
    assert not allows(asked, edit("gone.py", "z"))
    assert allows(asked, edit("crlf.py", "a = 1\nb")) and not allows(asked, edit("crlf.py", "z"))


async def test_a_final_of_a_schema_is_held_beside_the_help(run: Make) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    kit = run(final({"n": 1}))
    result = await kit.run(output_schema=schema)
    assert result.output == {"n": 1}
    assert allows(kit.pool.asked[0], final({"n": 2})) and not allows(kit.pool.asked[0], final("text"))


async def test_doubts_ask_for_log_probabilities_only_when_they_are_wanted(run: Make) -> None:
    for wanted in (True, False):
        kit = run(final(), settings={"assist": {"flag_doubts": wanted}})
        await kit.run()
        assert [asked.logprobs for asked in kit.pool.asked] == [wanted]


@dataclass
class Unsure(ScriptedPool):
    """Tells of each character of an output as a token, all of one probability."""

    async def generate(self, context: str, options: GenerationOptions) -> AsyncGenerator[GenerationItem, None]:
        async with aclosing(super().generate(context, options)) as items:
            async for item in items:
                if isinstance(item, Generated) and options.logprobs:
                    told = tuple(TokenLogprob(character, math.log(0.3), False) for character in item.text)
                    yield replace(item, logprobs=told)
                else:
                    yield item


@pytest.mark.parametrize(("below", "doubted"), [(0.31, True), (0.29, False)])
async def test_doubts_are_told_with_the_turn(kit: Make, below: float, doubted: bool) -> None:
    made = kit(settings={"assist": {"flag_doubts": True, "doubt_below": below}})
    made.pool = Unsure([turn(call("repo_map"), call("read", path="a.py")), final()])
    await made.run()
    told = made.messages("assistant")[0].doubts
    found = [(doubt.call, doubt.field, doubt.value, round(doubt.probability, 3)) for doubt in told or []]
    wanted = [("c1", "tool", "repo_map", 0.3), ("c2", "tool", "read", 0.3), ("c2", "path", "a.py", 0.3)]
    assert found == (wanted if doubted else [])
    assert made.messages("assistant")[1].doubts is None
    failed = made.results()[1].split("\n")
    guess = "[unsure] the path 'a.py' was a guess, with a probability of 0.30"
    assert failed[0] == "error: no such path: a.py" and (guess in failed) is doubted
