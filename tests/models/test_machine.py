"""What this machine gives: the limits of control groups, read from a folder that stands for the machine's root."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from caldrix.models.machine import control_group_limit, memory_limit, usable_cores

V1_NONE = "9223372036854771712"


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "1000\n"}, 1000),
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/\n", {}, None),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "500", "memory.max": "900"}, 500),
        ("0::/../elsewhere\n", {"memory.max": "700"}, 700),
        ("5:cpu,memory:/box\n1:name=x:/\n", {"memory/box/memory.limit_in_bytes": "800"}, 800),
        ("5:memory:/box\n", {"memory/memory.limit_in_bytes": "600"}, 600),
        ("5:memory:/\n", {"memory/memory.limit_in_bytes": V1_NONE}, int(V1_NONE)),
        ("5:cpu:/\n", {"memory.max": "1"}, None),
    ],
)
def test_the_least_limit_counts(tmp_path: Path, groups: str, files: dict[str, str], limit: int | None) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert control_group_limit(tmp_path) == limit


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert control_group_limit(tmp_path) is None


def test_the_limit_leaves_room_for_others() -> None:
    assert 0 < memory_limit() < psutil.virtual_memory().total
    assert usable_cores() >= 1
