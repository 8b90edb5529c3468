"""The `caldrix` command as a process of its own, with the fake engine in place of the real one."""

from __future__ import annotations

import sys
from types import ModuleType

from caldrix.__main__ import main
from tests.daemon.fake_engine import FakeLoader

if __name__ == "__main__":
    engine = ModuleType("caldrix.engine.member")
    engine.load_member = FakeLoader()  # type: ignore[attr-defined]
    sys.modules["caldrix.engine.member"] = engine
    sys.exit(main())
