"""What two texts have in common: where they part, and how much of one repeats another. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

REPEAT_CHARS: Final = 12
"""A shorter match is chance: a keyword, an indent."""


@dataclass(frozen=True)
class Arrival:
    """A piece of a streamed text and when it came, in seconds of one clock."""

    at: float
    text: str


def common_prefix(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))


def compared(one: str, other: str) -> str:
    """Whether two texts are equal, or where they part, as a note."""
    if one == other:
        return "texts equal"
    place = common_prefix(one, other)
    return f"texts part at character {place} of {max(len(one), len(other))}"


def repeated_chars(output: str, source: str) -> int:
    """Characters of `output` that stand in runs of at least REPEAT_CHARS which `source` holds too."""
    output = as_read(output)
    place, repeated = 0, 0
    while place < len(output):
        length = _run(output, place, source)
        repeated += length
        place += max(length, 1)
    return repeated


def as_read(output: str) -> str:
    """A JSON text with its line ends and quotes as a file has them; any other text as it is."""
    if not output.startswith("{"):
        return output
    return output.replace("\\n", "\n").replace('\\"', '"').replace("\\t", "\t").replace("\\\\", "\\")


def _run(output: str, place: int, source: str) -> int:
    """How many characters from `place` on stand in `source` in one piece; 0 for fewer than REPEAT_CHARS."""
    length = REPEAT_CHARS
    if len(output) < place + length or output[place : place + length] not in source:
        return 0
    while place + length < len(output) and output[place : place + length + 1] in source:
        length += 1
    return length


def seconds_until(arrivals: Sequence[Arrival], chars: int) -> float:
    """From the first piece until `chars` characters had come. Raises ValueError when so many never came."""
    seen = 0
    for arrival in arrivals:
        seen += len(arrival.text)
        if seen >= chars:
            return arrival.at - arrivals[0].at
    raise ValueError(f"only {seen} of {chars} characters came")
