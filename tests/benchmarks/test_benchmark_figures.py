"""The pure parts of the benchmark: statistics, texts, the table, the plot, the arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.pool.arguments import model_files, parse
from benchmarks.pool.errors import NotMeasured
from benchmarks.pool.facts import load, machine, versions
from benchmarks.pool.plot import can_plot, draw, label, plotted
from benchmarks.pool.ratio import Ratio, Spread, Verdict, Wanted, percent_over, quotients, spread, verdict
from benchmarks.pool.report import raw, write
from benchmarks.pool.run import Run
from benchmarks.pool.table import behind, figure, figures, number, page
from benchmarks.pool.texts import (
    Arrival,
    as_read,
    common_prefix,
    compared,
    repeated_chars,
    seconds_until,
)
from caldrix.protocol.errors import Refused

AT_LEAST = Wanted("at least", 1.3)
AT_MOST = Wanted("at most", 3)
WARM = Ratio(
    "first token", "m", "warm against cold", (21.0, 20.0, 30.0), "×", Wanted("at least", 20), {"cold, s": (5.0,)}
)
MISSING = Ratio("turn", "m", "against llama-server", reason="there is no llama-server", wanted=AT_LEAST)


def test_the_middle_of_an_even_number_of_values_lies_between_two() -> None:
    assert spread([4.0, 1.0, 3.0, 2.0]) == Spread(2.5, 1.0, 4.0)


def test_no_values_have_no_spread() -> None:
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_quotients_pair_the_repeats() -> None:
    assert quotients([10, 30], [2, 3]) == (5.0, 10.0)
    assert percent_over([103.0], [100.0]) == pytest.approx((3.0,))


@pytest.mark.parametrize(("above", "below"), [([1.0], [1.0, 2.0]), ([1.0], [0.0]), ([1.0], [-1.0])])
def test_sides_that_give_no_ratio_are_refused(above: list[float], below: list[float]) -> None:
    with pytest.raises(ValueError):
        quotients(above, below)


@pytest.mark.parametrize(
    ("values", "wanted", "says"),
    [
        ([1.3], AT_LEAST, "yes"),
        ([1.296], AT_LEAST, "yes"),
        ([1.29], AT_LEAST, "no"),
        ([1.1, 1.2, 1.4], AT_LEAST, "within the spread"),
        ([1.1, 1.35, 1.4], AT_LEAST, "yes"),
        ([2.0, 3.0, 9.0], AT_MOST, "yes"),
        ([2.9, 3.2, 9.0], AT_MOST, "within the spread"),
        ([3.2, 3.3], AT_MOST, "no"),
        ([-1.0], AT_MOST, "yes"),
    ],
)
def test_a_verdict_is_of_the_median(values: list[float], wanted: Wanted, says: Verdict) -> None:
    assert verdict(values, wanted) == says


@given(st.lists(st.floats(0.01, 100), min_size=1), st.floats(0.01, 100))
def test_one_bound_both_ways_is_met_at_least_once(values: list[float], bound: float) -> None:
    bound = round(bound, 2)
    verdicts = {verdict(values, Wanted(kind, bound)) for kind in ("at least", "at most")}
    assert "yes" in verdicts


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        ("abc", "abc", "texts equal"),
        ("abc", "abd", "texts part at character 2 of 3"),
        ("abc", "abcdef", "texts part at character 3 of 6"),
        ("", "x", "texts part at character 0 of 1"),
    ],
)
def test_two_texts_are_compared(one: str, other: str, says: str) -> None:
    assert compared(one, other) == says


@given(st.text(), st.text(), st.text())
def test_a_common_beginning_is_found(shared: str, one: str, other: str) -> None:
    place = common_prefix(shared + one, shared + other)
    assert place >= len(shared)
    assert (shared + one)[:place] == (shared + other)[:place]


FILE = 'def total(self):\n    return "sum of all"\n'


@pytest.mark.parametrize(
    ("output", "chars"),
    [
        (FILE, len(FILE)),
        ("# new\n" + FILE, len(FILE)),
        ('{"old": ' + json.dumps(FILE) + "}", len(FILE)),
        ("nothing of the kind stands here", 0),
        ("def total(s", 0),
        ("def total(self", 14),
        ("", 0),
    ],
)
def test_what_an_output_repeats_of_a_file_is_counted(output: str, chars: int) -> None:
    assert repeated_chars(output, FILE) == chars


def test_a_json_text_is_read_as_the_file_is() -> None:
    assert as_read('{"a": "x\\ny \\"z\\""}') == '{"a": "x\ny "z""}'
    assert as_read("no JSON: \\n") == "no JSON: \\n"


ARRIVALS = (Arrival(10.0, "ab"), Arrival(11.0, "c"), Arrival(13.0, "def"))


@pytest.mark.parametrize(("chars", "seconds"), [(1, 0.0), (2, 0.0), (3, 1.0), (4, 3.0), (6, 3.0)])
def test_the_clock_of_a_text_starts_with_its_first_piece(chars: int, seconds: float) -> None:
    assert seconds_until(ARRIVALS, chars) == seconds


def test_a_text_that_never_came_has_no_time() -> None:
    with pytest.raises(ValueError, match="6 of 7"):
        seconds_until(ARRIVALS, 7)


def run(arrivals: tuple[Arrival, ...], tokens: int, first_tokens: int) -> Run:
    return Run("abcdef", tokens, 100, 8.0, 14.0, arrivals, first_tokens, 3.0, 0)


def test_a_rate_leaves_out_what_came_first() -> None:
    measured = run(ARRIVALS, 8, 2)
    assert (measured.first_s, measured.wall_s, measured.rate, measured.token_ms) == (2.0, 6.0, 2.0, 500.0)
    assert measured.own_rate == pytest.approx(8 / 3)


@pytest.mark.parametrize(("arrivals", "tokens"), [(ARRIVALS, 2), (ARRIVALS[:1], 8)])
def test_a_text_of_one_piece_has_no_rate(arrivals: tuple[Arrival, ...], tokens: int) -> None:
    with pytest.raises(NotMeasured, match="in one piece"):
        _ = run(arrivals, tokens, 2).rate


def test_a_figure_is_a_median_with_its_spread() -> None:
    assert figure(WARM) == "21.00 × (20.00–30.00)"
    assert figure(MISSING) == "not measured: there is no llama-server"
    assert number(Spread(20170.4, 1000.0, 30000.0)) == "20170 (1000–30000)"


def test_the_table_of_a_model() -> None:
    assert figures([WARM, MISSING]) == [
        "| measurement | figure | median (spread) | wanted | met | note |",
        "| --- | --- | --- | --- | --- | --- |",
        "| first token | warm against cold | 21.00 × (20.00–30.00) | ≥ 20 × | yes |  |",
        "| turn | against llama-server | not measured: there is no llama-server | ≥ 1.3 × |  |  |",
    ]


def test_a_cell_holds_one_line_and_no_bar() -> None:
    (_, _, row) = figures([Ratio("x", "m", "y", reason="first\nsecond | third")])
    assert "not measured: first second \\| third" in row


def test_the_values_behind_stand_apart() -> None:
    assert behind([WARM, MISSING])[2:] == ["| m | first token | warm against cold | cold, s | 5.00 (5.00–5.00) |"]


def test_the_page_has_a_table_for_each_model() -> None:
    other = Ratio("turn", "n", "a against b", (2.0,))
    text = page([WARM, MISSING, other], {"machine": "a fast one"})
    assert "- machine: a fast one" in text
    assert [line for line in text.split("\n") if line.startswith("## ")] == [
        "## m",
        "## n",
        "## Values behind the ratios",
    ]


def test_only_measured_ratios_are_plotted() -> None:
    percent = Ratio("overhead", "m", "over", (1.0,), "%")
    assert plotted([WARM, MISSING, percent]) == [WARM]
    assert label(WARM) == "m: first token, warm against cold"


def test_the_plot_is_an_svg_of_every_ratio(tmp_path: Path) -> None:
    if not can_plot():
        pytest.skip("matplotlib is not installed")
    assert draw([WARM, MISSING], tmp_path / "p.svg")
    assert (tmp_path / "p.svg").read_text("utf-8").count("<svg") == 1
    assert not draw([MISSING], tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()


def test_a_run_leaves_its_page_and_its_numbers(tmp_path: Path) -> None:
    lines = write([WARM, MISSING], {"machine": "x"}, tmp_path / "deep" / "out")
    assert len(lines) == 3
    kept = json.loads((tmp_path / "deep" / "out" / "pool.json").read_text("utf-8"))
    assert kept == json.loads(raw([WARM, MISSING], {"machine": "x"}))
    assert kept["figures"][0]["values"] == [21.0, 20.0, 30.0]
    assert kept["figures"][1]["reason"] == "there is no llama-server"
    assert "warm against cold" in (tmp_path / "deep" / "out" / "pool.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "repeat", "only"),
    [
        ([], 5, 6),
        (["--quick"], 2, 6),
        (["--quick", "--repeat", "3"], 3, 6),
        (["--only", "mask", "--only", "turn"], 5, 2),
    ],
)
def test_the_arguments(words: list[str], repeat: int, only: int) -> None:
    parsed = parse(words)
    assert (parsed.repeat, len(parsed.only)) == (repeat, only)


@pytest.mark.parametrize("words", [["--repeat", "0"], ["--only", "everything"], ["--threads", "-1"]])
def test_wrong_arguments_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(words)
    assert "usage" in capsys.readouterr().err


def test_models_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found, missing = model_files(None)
    assert "qwen2.5-coder-0.5b" not in found
    assert any("qwen2.5-coder-0.5b" in sentence for sentence in missing)
    with pytest.raises(Refused):
        model_files([str(tmp_path / "none.gguf")])


def test_the_facts_name_the_machine() -> None:
    assert "cores" in machine()
    assert "llama-cpp-python" in versions()
    assert float(load()) >= 0
