"""`aerix` whose server is the real LSP room over the double of tests/lsp. For the command's tests."""

from __future__ import annotations

import sys
from pathlib import Path

from aerix_cli import connect, main

double = Path(__file__).parent.parent / "lsp" / "fake_sessions.py"
connect.COMMAND = (sys.executable, "-P", str(double))  # type: ignore[misc]
main.main()
