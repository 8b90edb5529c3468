"""Who is served next, which rows a pass computes, and the sizes that measured speeds give."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caldrix.engine.backend import MAX_PASS_ROWS, MIN_PASS_ROWS
from caldrix.engine.rates import SHARED_CHUNK, SIZES, Rates
from caldrix.engine.schedule import FEW_ROWS, Need, next_waiting, order, plan_pass, wait_seconds

CHUNK = 100


def chunk(remaining: int, shared: bool) -> int:
    """As Rates sizes them, for a machine that computes CHUNK rows in a pass."""
    if remaining <= CHUNK:
        return remaining
    return CHUNK if remaining - CHUNK >= MIN_PASS_ROWS else remaining - MIN_PASS_ROWS


def served(needs: list[Need], most: int) -> list[list[int]]:
    """The plans of one pass after the other until nobody needs anything; the needs take turns as slots do."""
    needs = list(needs)
    places = list(range(len(needs)))
    plans = []
    while any(need.rows for need in needs):
        assert len(plans) < most, f"after {most} passes {needs} are left"
        turn = [place for place in places if needs[place].rows]
        given_rows = dict(zip(turn, plan_pass([needs[place] for place in turn], chunk), strict=True))
        assert any(given_rows.values())
        for place, rows in given_rows.items():
            need = needs[place]
            stop = None if need.stop is None or rows == need.stop else need.stop - rows
            needs[place] = replace(need, rows=need.rows - rows, served=need.served + rows, stop=stop)
        plans.append([given_rows.get(place, 0) for place in range(len(needs))])
        places = [*places[1:], *places[:1]]
    return plans


def prompts(most: int = 1200) -> st.SearchStrategy[Need]:
    return st.integers(1, most).flatmap(
        lambda rows: st.builds(Need, st.just(rows), stop=st.one_of(st.none(), st.integers(1, rows)))
    )


DECODERS = st.builds(Need, st.integers(1, 130), decodes=st.just(True))


@given(st.lists(st.one_of(prompts(), DECODERS), min_size=1, max_size=32))
def test_a_pass_is_never_too_long_and_never_gives_too_much(needs: list[Need]) -> None:
    plan = plan_pass(needs, chunk)
    assert 0 < sum(plan) <= MAX_PASS_ROWS
    assert all(0 <= rows <= need.rows for rows, need in zip(plan, needs, strict=True))
    assert all(need.stop is None or rows <= need.stop for rows, need in zip(plan, needs, strict=True))


@given(st.lists(st.one_of(prompts(), DECODERS), min_size=1, max_size=32))
def test_all_are_served_within_bounds(needs: list[Need]) -> None:
    """At worst each pass has a chunk for one of them, cut short by the rows of those that decode."""
    bound = sum(-(-need.rows // MIN_PASS_ROWS) + 2 for need in needs) + len(needs)
    plans = served(needs, bound)
    assert [sum(column) for column in zip(*plans, strict=True)] == [need.rows for need in needs]


@given(st.lists(prompts(), min_size=1, max_size=3), st.lists(DECODERS, min_size=1, max_size=4))
def test_no_decoder_is_left_out_while_a_prompt_is_read(reading: list[Need], decoding: list[Need]) -> None:
    plan = plan_pass([*reading, *decoding], chunk)
    assert all(plan[len(reading) :])
    assert any(plan[: len(reading)]), "and its long needs do not hold the prompts up"


@given(st.lists(st.integers(33, 400), min_size=2, max_size=2))
def test_the_shorter_of_two_prompts_ends_first_or_in_the_same_round(rows: list[int]) -> None:
    plans = served([Need(count) for count in rows], 100)
    ends = [max(place for place, plan in enumerate(plans) if plan[which]) for which in range(2)]
    short = rows.index(min(rows))
    assert ends[short] <= ends[1 - short] + (-(-rows[short] // CHUNK) == -(-rows[1 - short] // CHUNK))


def test_a_short_prompt_passes_a_long_one_that_came_before_it() -> None:
    long, late = Need(4000, served=1000), Need(90)
    assert plan_pass([long, late], chunk) == [0, 90]


def test_a_prompt_is_read_on_beside_one_that_always_wants_much() -> None:
    """A drafted edit asks for dozens of rows at every turn."""
    prompt = Need(2000, served=500)
    for _ in range(10):
        plan = plan_pass([prompt, Need(48, decodes=True)], chunk)
        assert plan[0] == CHUNK and plan[1] >= MIN_PASS_ROWS
        prompt = replace(prompt, rows=prompt.rows - plan[0], served=prompt.served + plan[0])


def test_one_that_decodes_alone_gets_all_it_wants_at_once() -> None:
    assert plan_pass([Need(48, decodes=True)], chunk) == [48]
    assert plan_pass([Need(48, decodes=True), Need(1, decodes=True)], chunk) == [48, 1]


def test_a_point_to_save_at_is_never_passed() -> None:
    assert plan_pass([Need(2 * MIN_PASS_ROWS, stop=MIN_PASS_ROWS)], chunk) == [MIN_PASS_ROWS]


def test_a_pass_that_is_nearly_full_leaves_no_short_tail() -> None:
    decoders = [Need(FEW_ROWS, decodes=True)] * 13
    left = MAX_PASS_ROWS - 13 * FEW_ROWS
    plan = plan_pass([Need(left + 3), *decoders], lambda remaining, shared: remaining)
    assert plan[0] == left + 3 - MIN_PASS_ROWS and plan[1:] == [FEW_ROWS] * 13


@pytest.mark.parametrize(
    ("waiting", "running", "places"),
    [
        ("a", "", [0]),
        ("aab", "", [0, 2, 1]),
        ("aab", "a", [2, 0, 1]),
        ("aaabbb", "", [0, 3, 1, 4, 2, 5]),
        ("abc", "bb", [0, 2, 1]),
        ("aaa", "bbb", [0, 1, 2]),
    ],
)
def test_the_fewest_running_come_first(waiting: str, running: str, places: list[int]) -> None:
    assert order(waiting, running) == places
    assert next_waiting(waiting, running) == places[0]


@pytest.mark.parametrize(
    ("waiting", "started", "places"),
    [("ab", "a", [1, 0]), ("abc", "acb", [0, 2, 1]), ("aab", "bbba", [2, 0, 1]), ("abc", "ab", [2, 0, 1])],
)
def test_one_slot_is_shared_in_turn(waiting: str, started: str, places: list[int]) -> None:
    assert order(waiting, "", started) == places


@given(st.text("abc", max_size=12), st.text("abc", max_size=6))
def test_the_order_is_fair_and_kept_within_a_client(waiting: str, running: str) -> None:
    places = order(waiting, running)
    assert sorted(places) == list(range(len(waiting)))
    for client in "abc":
        own = [place for place in places if waiting[place] == client]
        assert own == sorted(own)
    started = list(running)
    for number, place in enumerate(places):
        still = {waiting[other] for other in places[number:]}
        assert started.count(waiting[place]) == min(started.count(client) for client in still)
        started.append(waiting[place])


@pytest.mark.parametrize(
    ("rows", "tokens", "slots", "prefill", "decode", "seconds"),
    [
        (0, 0, 1, 100.0, 10.0, 0.0),
        (200, 30, 1, 100.0, 10.0, 5.0),
        (200, 30, 3, 100.0, 10.0, 3.0),
        (200, 30, 0, 100.0, 10.0, 5.0),
        (200, 30, 1, None, 10.0, None),
        (200, 30, 1, 100.0, None, None),
    ],
)
def test_how_long_a_job_waits(
    rows: int, tokens: int, slots: int, prefill: float | None, decode: float | None, seconds: float | None
) -> None:
    assert wait_seconds(rows, tokens, slots, prefill, decode) == seconds


SPEEDS = st.one_of(st.none(), st.floats(1, 1e5))


def machine(speed: float | None) -> Rates:
    rates = Rates()
    if speed is not None:
        rates.note(MIN_PASS_ROWS, MIN_PASS_ROWS / speed)
    return rates


@given(SPEEDS, st.integers(1, 5000), st.booleans())
def test_a_chunk_leaves_no_short_tail(speed: float | None, remaining: int, shared: bool) -> None:
    rows = machine(speed).chunk(remaining, shared=shared)
    assert 0 < rows <= min(remaining, SHARED_CHUNK if shared else MAX_PASS_ROWS)
    assert rows == remaining or (rows >= MIN_PASS_ROWS and remaining - rows >= MIN_PASS_ROWS)


@given(st.floats(1, 1e5), st.floats(1, 1e5), st.integers(600, 5000), st.booleans())
def test_a_faster_machine_has_no_smaller_chunks(one: float, other: float, remaining: int, shared: bool) -> None:
    slow, fast = sorted((one, other))
    assert machine(slow).chunk(remaining, shared=shared) <= machine(fast).chunk(remaining, shared=shared)
    assert machine(fast).chunk(remaining, shared=True) <= machine(fast).chunk(remaining, shared=False)


@given(st.dictionaries(st.sampled_from(SIZES), st.floats(1e-4, 10), min_size=1), st.integers(1, 100))
def test_expected_seconds_lie_between_measured_neighbours(measured: dict[int, float], rows: int) -> None:
    rates = Rates()
    for size, seconds in measured.items():
        rates.note(size, seconds)
    expected = rates.seconds(rows)
    assert expected is not None
    below = [size for size in measured if size <= rows]
    above = [size for size in measured if size >= rows]
    if below and above:
        low, high = sorted((measured[max(below)], measured[min(above)]))
        assert low * (1 - 1e-9) <= expected <= high * (1 + 1e-9)
    elif above:
        assert expected == measured[min(above)]
    else:
        assert expected == pytest.approx(measured[max(below)] * rows / max(below))


def test_nothing_is_expected_before_a_pass_was_seen() -> None:
    rates = Rates()
    assert rates.seconds(1) is rates.prefill is rates.decode is None
    rates.note(1, 0.0)
    assert rates.decode is None, "a clock that stood still says nothing"
    rates.note(1, 0.5)
    rates.note(1, 0.25)
    assert rates.decode == pytest.approx(2 + 0.3 * (4 - 2)) and rates.prefill is None


def test_the_cost_of_a_longer_pass_follows_that_of_one_row() -> None:
    """Measured beside a busy program, eight rows must not stay too dear to guess once the machine is quiet."""
    rates = Rates()
    for _ in range(20):
        rates.note(1, 0.1)
        rates.note(8, 0.4)
    for _ in range(30):
        rates.note(1, 0.02)
    assert rates.seconds(8) == pytest.approx(0.08, rel=0.05)
    rates.note(8, 0.08)
    assert rates.seconds(8) == pytest.approx(0.08, rel=0.05)
