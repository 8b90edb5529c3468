"""The choice of a thread count on simulated machines."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caldrix.engine.pace import FIRST_INTERVAL, LAST_INTERVAL, TRIES, Pace, Paces, fastest, thread_counts

Machine = Callable[[int], float]


def even(threads: int) -> float:
    """Every thread has a core of its own; passing rows on costs a little."""
    return 1 / threads + 0.01 * threads


def busy(threads: int) -> float:
    """Other programs use all cores but two: the slowest thread holds all up."""
    return 1 / threads if threads <= 2 else 0.6 * threads


def run(pace: Pace, machine: Machine, passes: int, noise: float = 0.0, seed: int = 0) -> list[int]:
    """The thread counts that the passes got."""
    chance = random.Random(seed)
    used = []
    for _ in range(passes):
        threads = pace.next()
        used.append(threads)
        pace.note(threads, machine(threads) * (1 + noise * chance.random()))
    return used


@pytest.mark.parametrize(("machine", "best"), [(even, 4), (busy, 2)])
@pytest.mark.parametrize("start", [1, 2, 4])
@pytest.mark.parametrize("noise", [0.0, 0.15])
def test_the_fastest_is_found(machine: Machine, best: int, start: int, noise: float) -> None:
    pace = Pace((1, 2, 3, 4), start)
    run(pace, machine, FIRST_INTERVAL + 4 * TRIES, noise)
    assert pace.threads == best


def test_it_changes_when_the_machine_gets_busy_and_back() -> None:
    pace = Pace((1, 2, 3, 4), 4)
    run(pace, even, 1000)
    assert pace.threads == 4
    slow = run(pace, busy, 60)
    assert pace.threads == 2 and slow.count(4) < 20, "found out at once, not at the next trial of the clock"
    run(pace, even, 2 * FIRST_INTERVAL)
    assert pace.threads == 4, "a machine that got free is not noticed by its speed, but soon tried again"


@given(st.integers(1, 4), st.integers(0, 2**32))
def test_a_trial_costs_a_small_share_of_the_passes(start: int, seed: int) -> None:
    """On a machine that stays as it is, passes with another count than the chosen are those of the trials."""
    pace = Pace((1, 2, 3, 4), start)
    run(pace, even, FIRST_INTERVAL + 4 * TRIES, 0.1, seed)
    used = run(pace, even, 8 * LAST_INTERVAL, 0.1, seed)
    assert used.count(pace.threads) > 0.98 * len(used)
    assert max(used.count(threads) for threads in (1, 2, 3)) <= TRIES * 12


def test_one_count_is_never_tried() -> None:
    assert set(run(Pace((3,), 3), busy, 5000)) == {3}


def test_a_note_of_another_count_does_not_count() -> None:
    """A pass that was planned before a trial began may be told of after it."""
    pace = Pace((1, 2), 2)
    for _ in range(FIRST_INTERVAL):
        assert not pace.trying
        pace.note(2, 1.0)
    assert pace.next() == 1 and pace.trying
    pace.note(2, 0.001)
    assert pace.next() == 1


@pytest.mark.parametrize(
    ("times", "best"), [({1: 1.0}, 1), ({1: 1.0, 2: 0.5}, 2), ({4: 0.5, 2: 0.5, 1: 0.7}, 2), ({1: 1.0, 2: 1.0}, 1)]
)
def test_fastest(times: dict[int, float], best: int) -> None:
    assert fastest(times) == best


@pytest.mark.parametrize(
    ("cores", "counts"), [(1, (1,)), (2, (1, 2)), (4, (1, 2, 3, 4)), (8, (2, 4, 6, 8)), (6, (2, 3, 4, 6))]
)
def test_counts_worth_trying(cores: int, counts: tuple[int, ...]) -> None:
    assert set(thread_counts(cores)) <= set(range(1, cores + 1)) and thread_counts(cores)[-1] == cores
    assert len(thread_counts(cores)) == len(counts)


def test_kinds_of_passes_choose_for_themselves() -> None:
    """Here a row is fastest with one thread, since many rows alone are worth passing on."""
    paces = Paces((1, 2, 4), few=4, many=4)

    def machine(rows: int, threads: int) -> float:
        return rows / threads + 2.0 * threads

    for place in range(4 * FIRST_INTERVAL):
        rows = (1, 200)[place % 2]
        threads = paces.threads(rows)
        paces.note(rows, threads, machine(rows, threads))
    assert (paces.threads(1), paces.threads(200)) == (1, 4)


def test_passes_of_about_the_same_length_are_compared_by_the_row() -> None:
    paces = Paces((1, 2), few=2, many=2)
    chance = random.Random(1)
    for _ in range(2 * FIRST_INTERVAL):
        rows = chance.randint(65, 128)
        threads = paces.threads(rows)
        paces.note(rows, threads, rows * (1.0 if threads == 2 else 1.1))
    assert paces.threads(100) == 2
