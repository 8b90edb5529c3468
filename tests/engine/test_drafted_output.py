"""A draft is never seen in what comes out, whatever was guessed: only in how many passes it took."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caldrix.engine import draft as draft_module
from caldrix.engine.constrain import Compiler
from caldrix.engine.generate import Compute, Generation, Prepared
from caldrix.engine.guard import Guard
from caldrix.engine.jobs import Finished, Item, Job, Part, TextDelta
from caldrix.engine.member import LoadedMember
from caldrix.protocol.messages import Constraint, Json, Lark, Regex, Sampling
from tests.doubles.toy_backend import HEADER, SIZE, VOCABULARY, Script, ToyBackend
from tests.engine.conftest import start

PROMPT = [*b"a prompt", *HEADER]
SCHEMA = {
    "type": "object",
    "properties": {"path": {"const": "src/shapes.py"}, "text": {"type": "string"}},
    "required": ["path", "text"],
    "additionalProperties": False,
}
JSON = Json(kind="Json", schema=SCHEMA)
SPELT = json.dumps({"path": "src/shapes.py", "text": 'def f():\n\treturn "é\\\\"\n' * 3}, ensure_ascii=False)
CASES: list[tuple[str, Constraint | None]] = [
    ("plain text that goes on for a while, and on, and on", None),
    (SPELT, JSON),
    ("aaaa-0042-bbbb", Regex(kind="Regex", pattern="[ab]+-[0-9]{4}-[ab]+")),
    ("yes and yes and yes", Lark(kind="Lark", grammar='start: "yes" (" and " "yes")*')),
    ("", None),
]
COMPILER = Compiler(ToyBackend(Script([""])).matcher_tokenizer(), Guard())

Guess = Callable[[bytes, int], Sequence[int]]
"""Given the output so far and the room, tokens that may follow."""


class InjectedDrafter:
    """Proposes what a test wants, and keeps what it was told of it."""

    def __init__(self, guess: Guess) -> None:
        self._guess = guess
        self.notes: list[tuple[int, int]] = []
        self.proposed = 0

    def propose(self, output: bytearray, pending: int, room: int) -> list[int]:
        assert room >= 1 and pending >= 0
        return list(self._guess(bytes(output), room))[:room]

    def note(self, proposed: int, accepted: int) -> None:
        assert 0 <= accepted <= proposed > 0
        self.notes.append((proposed, accepted))


def generate(
    reply: str, constraint: Constraint | None, guess: Guess | None, *, tokens: int = 300, temperature: float = 0.0
) -> tuple[Finished, list[Item], InjectedDrafter | None, int]:
    """A generation driven by hand; also counts its passes. Rows are kept here, so that a wrong cut shows."""
    backend = ToyBackend(Script([reply]))
    sampling = Sampling(temperature=temperature, seed=7)
    job = Job(PROMPT, tokens, lambda item: None, constraint, sampling)
    matcher = None if constraint is None else COMPILER.matcher(constraint)  # type: ignore[arg-type]
    drafter = InjectedDrafter(guess) if guess else None
    steps = Generation(Prepared(job, matcher), VOCABULARY, drafter, 4).steps()
    rows: list[int] = []
    items: list[Item] = []
    answer = None
    passes = 0
    try:
        while True:
            match steps.send(answer):
                case Compute(keep=keep, tokens=wanted_tokens, wanted=wanted, meanwhile=meanwhile):
                    assert keep <= len(rows)
                    del rows[keep:]
                    lines = []
                    for token in wanted_tokens:
                        rows.append(token)
                        lines.append(backend._logits(rows))
                    if meanwhile:
                        meanwhile()
                    passes += bool(wanted_tokens)
                    answer = np.array(lines[len(lines) - wanted :], np.float32).reshape(wanted, SIZE)
                case item:
                    items.append(item)  # type: ignore[arg-type]
                    answer = None
    except StopIteration as end:
        done: Finished = end.value
    assert rows[: len(PROMPT)] == PROMPT
    assert rows[len(PROMPT) :] == list(done.ids)[: len(rows) - len(PROMPT)], "what stands is what came out"
    return done, items, drafter, passes


def right(reply: str, length: int) -> Guess:
    """What the script wants next, whatever constraint there is."""
    known = reply.encode()
    return lambda output, room: known[len(output) : len(output) + length] if known.startswith(output) else b""


def half(reply: str, length: int) -> Guess:
    """Right at first, then wrong."""

    def guess(output: bytes, room: int) -> list[int]:
        good = list(right(reply, length)(output, room))
        return [*good[: len(good) // 2], *(token ^ 1 for token in good[len(good) // 2 :])]

    return guess


def wrong(reply: str, length: int) -> Guess:
    return lambda output, room: [ord("~")] * length


GUESSES = {"right": right, "half": half, "wrong": wrong}


@pytest.mark.parametrize("length", [1, 2, 7, 47, 127])
@pytest.mark.parametrize("kind", GUESSES)
@pytest.mark.parametrize(("reply", "constraint"), CASES)
@pytest.mark.parametrize("temperature", [0.0, 3.0])
def test_any_guess_leaves_the_output_as_it_is(
    reply: str, constraint: Constraint | None, kind: str, length: int, temperature: float
) -> None:
    plain, _, _, slow = generate(reply, constraint, None, temperature=temperature)
    done, items, drafter, quick = generate(reply, constraint, GUESSES[kind](reply, length), temperature=temperature)
    assert (done.ids, done.text, done.finish) == (plain.ids, plain.text, plain.finish)
    assert done.usage.forced_tokens == plain.usage.forced_tokens
    assert done.usage.accepted_tokens <= done.usage.drafted_tokens
    deltas = [item for item in items if isinstance(item, TextDelta)]
    assert "".join(item.text for item in deltas) == done.text
    assert sum(item.tokens for item in deltas) == len(done.ids)
    assert sum(item.forced for item in deltas) == done.usage.forced_tokens
    assert quick <= slow
    assert drafter is not None
    assert sum(accepted for _, accepted in drafter.notes) == done.usage.accepted_tokens
    assert sum(proposed for proposed, _ in drafter.notes) == done.usage.drafted_tokens
    if temperature == 0:
        assert done.text == reply
        if kind == "right" and length == 47 and constraint is None and reply:
            assert quick <= 2 + len(reply) // 47 + 1


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(CASES), st.integers(1, 60), st.sampled_from([0.0, 2.0]))
def test_random_guesses_and_any_length(
    data: st.DataObject, case: tuple[str, Constraint | None], tokens: int, temperature: float
) -> None:
    reply, constraint = case
    known = reply.encode()

    def guess(output: bytes, room: int) -> list[int]:
        good = data.draw(st.integers(0, 12))
        bad = data.draw(st.lists(st.integers(0, SIZE - 1), max_size=3))
        return [*known[len(output) : len(output) + good], *bad]

    plain, *_ = generate(reply, constraint, None, tokens=tokens, temperature=temperature)
    done, *_ = generate(reply, constraint, guess, tokens=tokens, temperature=temperature)
    assert (done.ids, done.finish) == (plain.ids, plain.finish)
    assert done.usage.forced_tokens == plain.usage.forced_tokens
    assert done.usage.completion_tokens <= tokens


FILE = "".join(f"def function_{number}(a, b):\n    return a * {number} + b  # 'line'\n\n" for number in range(6))
NUMBERED = "".join(f"{number:6}\t{line}\n" for number, line in enumerate(FILE.splitlines(), 1))
EDIT = json.dumps({"path": "src/shapes.py", "text": FILE.replace("* 3", "* 33")})


@pytest.mark.parametrize("shown", [FILE, NUMBERED])
@pytest.mark.parametrize(
    ("reply", "constraint"), [(FILE, None), (EDIT, JSON), (FILE, Regex(kind="Regex", pattern="(?s:.{100,600})"))]
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_edit_repeats_its_file(
    open_member: Callable[..., LoadedMember],
    monkeypatch: pytest.MonkeyPatch,
    reply: str,
    constraint: Constraint | None,
    shown: str,
    temperature: float,
) -> None:
    """Through the whole member, with its own look-up. Any gain is enough: what passes take here is only noise."""
    monkeypatch.setattr(draft_module, "LEAST_GAIN", 0.0)
    sampling = Sampling(temperature=temperature, seed=3)
    done = [
        start(
            open_member(reply),
            [Part("user", f"Edit this file:\n{shown}")],
            tokens=600,
            constraint=constraint,
            sampling=sampling,
            draft=draft,
        ).finished()
        for draft in (False, True)
    ]
    assert (done[0].ids, done[0].finish) == (done[1].ids, done[1].finish)
    assert done[0].usage.forced_tokens == done[1].usage.forced_tokens
    assert done[0].usage.drafted_tokens == 0
    assert 0 < done[1].usage.accepted_tokens <= done[1].usage.drafted_tokens
