"""Looking up what may come next: what is found, how much of it is guessed, and what is learnt from it."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from caldrix.engine.draft import LENGTHS, LookupDrafter, best_length, corpus, tokens_of


def drafter(known: bytes, seconds: float = 1.0, a_row: float = 0.001) -> LookupDrafter:
    """Tokens are characters; a row more costs next to nothing."""
    return LookupDrafter(known, lambda text: [*text.encode()], lambda rows: seconds + a_row * rows, lambda: 0)


def proposed(known: bytes, output: bytes, room: int = 100) -> bytes:
    return bytes(drafter(known).propose(bytearray(output), 1, room))


TEXT = b"def area(width, height):\n    return width * height\n\n\ndef volume(area, depth):\n    return area * depth\n"


@pytest.mark.parametrize(
    ("output", "follows"),
    [
        (b"here it is:\ndef area(wid", b"th, height):"),
        (b"    return area", b" * depth\n"),
        (b"eturn width *", b" height"),
        (b"idth, h", b""),
        (b"width", b""),
        (b"something else entirely", b""),
        (b"", b""),
    ],
)
def test_what_followed_the_output_s_end_is_guessed(output: bytes, follows: bytes) -> None:
    guess = proposed(TEXT, output)
    assert guess.startswith(follows) if follows else guess == b""


@given(st.binary(max_size=60), st.lists(st.sampled_from("abc é\n"), min_size=12, max_size=60), st.data())
def test_a_guess_occurs_in_what_is_known(noise: bytes, letters: list[str], data: st.DataObject) -> None:
    """After the last five bytes at least, in the corpus or in the output itself."""
    known = "".join(letters).encode()
    cut = data.draw(st.integers(0, len(known)))
    output = noise + known[:cut]
    room = data.draw(st.integers(1, 60))
    guess = proposed(known, output, room)
    assert len(guess) <= room
    if guess:
        found = output[-5:] + guess
        # Bytes of a character that is not whole are left out of a guess.
        assert any(found in text or guess in text for text in (known, output))


@given(st.integers(0, 40), st.integers(1, 60))
def test_never_more_than_there_is_room_for(cut: int, room: int) -> None:
    assert len(proposed(TEXT, TEXT[: 20 + cut], room)) <= room


def test_the_look_up_goes_on_where_it_stood() -> None:
    """Of several places that fit the one after the last find is likely: an edit goes through a file in order."""
    known = b"\nstart one\nthe same line\nA\nstart two\nthe same line\nB\nstart three\nthe same line\nC\n"
    looking = drafter(known)
    assert bytes(looking.propose(bytearray(b"start two"), 1, 50)).startswith(b"\nthe same line")
    assert bytes(looking.propose(bytearray(b"start two\nthe same line"), 1, 50)).startswith(b"\nB")
    assert bytes(looking.propose(bytearray(b"\nstart one\nthe same line"), 1, 50)).startswith(b"\nA")


def test_a_copy_with_changes_is_found_again_by_few_bytes() -> None:
    known = b"total = price * count + freight + customs duty + insurance"
    looking = drafter(known)
    assert bytes(looking.propose(bytearray(b"total = price"), 1, 50)).startswith(b" * count")
    assert bytes(looking.propose(bytearray(b"total = price * pieces + f"), 1, 50)) == b""
    assert bytes(looking.propose(bytearray(b"total = price * pieces + fr"), 1, 50)).startswith(b"eight + customs")


def test_the_output_itself_is_looked_up() -> None:
    assert proposed(b"", b"a list of some things, and again a list of so").startswith(b"me things")


def test_an_end_inside_a_character_guesses_what_is_whole() -> None:
    known = "naïve façade naïve".encode()
    assert proposed(known, known[:10]).decode()


@pytest.mark.parametrize(
    ("chance", "seconds", "room", "length"),
    [
        (1.0, (1.0, 0.0), 100, LENGTHS[-1]),
        (1.0, (1.0, 0.0), 5, 5),
        (1.0, (0.0, 1.0), 100, 0),
        (0.0, (1.0, 0.0), 100, 0),
        (0.05, (1.0, 0.0), 100, 0),
        (0.9, (1.0, 10.0), 100, 0),
    ],
)
def test_how_much_is_guessed(chance: float, seconds: tuple[float, float], room: int, length: int) -> None:
    fixed, a_row = seconds
    assert best_length(chance, lambda rows: fixed + a_row * rows, 1, room) == length


def test_nothing_is_guessed_before_costs_are_known() -> None:
    assert best_length(1.0, lambda rows: None, 1, 100) == 0


@given(st.floats(0, 1), st.floats(0.01, 10), st.floats(0, 1), st.integers(1, 8), st.integers(1, 127))
def test_a_guess_pays_by_what_is_expected(chance: float, fixed: float, a_row: float, rows: int, room: int) -> None:
    def seconds(count: int) -> float:
        return fixed + a_row * count

    length = best_length(chance, seconds, rows, room)
    assert 0 <= length <= min(room, LENGTHS[-1])
    expected = sum(chance**place for place in range(length + 1))
    assert length == 0 or expected / seconds(rows + length) > 1 / seconds(rows)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_better_chance_guesses_no_less(one: float, other: float) -> None:
    low, high = sorted((one, other))

    def seconds(rows: int) -> float:
        return 1 + 0.1 * rows

    assert best_length(low, seconds, 1, 60) <= best_length(high, seconds, 1, 60)


def test_wrong_guesses_make_it_stop_and_right_ones_start_again() -> None:
    looking = drafter(TEXT, a_row=0.2)
    output = bytearray(b"def area(wid")
    first = len(looking.propose(output, 1, 100))
    assert first
    for _ in range(20):
        looking.note(first, 0)
    assert looking.propose(output, 1, 100) == []
    for _ in range(20):
        looking.note(7, 7)
    assert len(looking.propose(output, 1, 100)) >= first


@pytest.mark.parametrize(
    ("texts", "escaped", "known", "unknown"),
    [
        ([("a\n\tb", False)], False, [b"a\n\tb"], [rb"a\n"]),
        ([("a\n\tb", False)], True, [rb"a\n\tb"], [b"a\n\tb"]),
        ([('say "no" \\', False)], True, [rb"say \"no\" \\"], []),
        ([('{"x": "a\\nb"}', True)], True, [rb'{"x": "a\nb"}'], [rb"\\n"]),
        ([("     7\tdef f():\n     8\t    pass\n", False)], True, [rb"def f():\n    pass\n"], [b"     8"]),
        ([("7: def f():\n8:     pass", False)], False, [b"7: def f():\n8:     pass", b"def f():\n    pass"], []),
        ([("12| x\n13| y", False)], True, [rb"x\ny"], []),
        ([("one", False), ("two", True)], True, [b"one\ntwo"], []),
        ([("é😸", False)], True, ["é😸".encode()], [rb"\u"]),
        ([], True, [], [b"x"]),
        ([("\ud800", False)], False, [b"?"], []),
    ],
)
def test_the_forms_of_the_corpus(
    texts: list[tuple[str, bool]], escaped: bool, known: list[bytes], unknown: list[bytes]
) -> None:
    form = corpus(texts, escaped=escaped)
    assert all(text in form for text in known) and not any(text in form for text in unknown), form


def test_a_tokenizer_that_begins_with_a_blank_is_asked_for_the_middle_of_a_text() -> None:
    pieces = [bytes([byte]) for byte in range(256)]

    def blank(text: str) -> list[int]:
        return [32, *text.encode()]

    assert tokens_of(blank, pieces)("word") == [*b"word"]
    assert tokens_of(lambda text: [*text.encode()], pieces)("word") == [*b"word"]


@given(st.text(max_size=80), st.text(min_size=8, max_size=40))
def test_a_file_s_text_is_found_as_json_spells_it(before: str, line: str) -> None:
    assume(max(line) < "\ud800" or max(line) > "\udfff")
    spelt = json.dumps(line, ensure_ascii=False)[1:-1].encode("utf-8", "replace")
    assert spelt in corpus([(before, False), (f"x{line}", False)], escaped=True)
