"""What stands in every prompt, worded by the window, and said to the user where it takes much of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aerix_server.protocol.events import Notice, SegmentEvent
from tests.runtime.loop_kit import Kit, final
from tests.runtime.scripted_pool import HEADER, PER_SEGMENT

Make = Callable[..., Kit]
FULL = "background gives a job id"
SETTINGS = {"context": {"max_new_tokens": 200}}


async def fixed(kit: Make, window: int) -> int:
    """Tokens of what stands in every prompt, for a window."""
    run = kit(final(), window=window, settings=SETTINGS)
    await run.run()
    (system,) = [event.tokens for event in run.of(SegmentEvent) if event.label == "system"]
    return int(system) + PER_SEGMENT + HEADER


@pytest.mark.parametrize(
    ("choose", "full", "level"),
    [
        (lambda full, _brief: 100 * full, True, None),
        (lambda full, _brief: 2 * full, True, None),
        (lambda full, _brief: 2 * full - 2, False, "info"),
        (lambda _full, brief: 2 * brief, False, "info"),
        (lambda _full, brief: 2 * brief - 2, False, "warning"),
    ],
)
async def test_by_the_window(kit: Make, choose: Callable[[int, int], int], full: bool, level: str | None) -> None:
    window = choose(await fixed(kit, 100_000), await fixed(kit, 1_500))
    run = kit(final(), window=window, settings=SETTINGS)
    assert (await run.run()).outcome == "final"
    system = run.rebuilt()["s1"]
    assert (FULL in system.text) is full and all(f"- {name}(" in system.text for name in ("read", "agent", "bash"))
    told = run.of(Notice)
    assert [notice.level for notice in told] == ([level] if level else [])
    if level:
        tokens = {event.label: event.tokens for event in run.of(SegmentEvent)}
        assert (
            f"the window of {window} tokens is small" in told[0].text and f"system {tokens['system']}" in told[0].text
        )
        assert ("will be compacted often" in told[0].text) is (level == "warning")
    assert [event.op for event in run.of(SegmentEvent)] == ["append"] * len(run.of(SegmentEvent))


async def test_without_room_for_a_turn_it_is_refused_with_the_numbers_after_shortening(kit: Make) -> None:
    run = kit(window=2_600, settings={"context": {"max_new_tokens": 600}})
    run.instructions = "x" * 4 * 1500
    result = await run.run()
    assert result.outcome == "failed" and "the request does not fit the model" in str(result.reason)
    assert "instructions 15" in str(result.reason) and len(run.of(Notice)) == 1 and run.pool.asked == []
