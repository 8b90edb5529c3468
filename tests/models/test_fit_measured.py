"""The formula against the memory of a process that holds a full window of the embedded model."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from caldrix.models.refs import resolve

pytestmark = pytest.mark.model
SEQUENCES = 32
SLACK_BYTES = 100 << 20


@pytest.mark.parametrize("window", [2048, 8192])
def test_the_formula_is_never_below_and_not_far_above(window: int) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.models.full_window",
        str(resolve("smollm2-instruct")),
        str(window),
        str(SEQUENCES),
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    sizes = json.loads(done.stdout)
    assert sizes["measured"] <= sizes["computed"] <= 1.25 * sizes["measured"] + SLACK_BYTES
