"""Where ripgrep is, and whether it takes a pattern for a regex: asked of it before anything is searched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from aerix_server.tools.base import ToolError


def find_ripgrep() -> str:
    """The path of `rg`: beside this interpreter, else on PATH. Raises ToolError when there is none."""
    beside = Path(sys.executable).parent / "rg"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("rg")
    if found is None:
        raise ToolError("ripgrep (rg) was not found; install the package ripgrep, or use bash with grep -rn")
    return found


def check_pattern(pattern: str) -> None:
    """Raises ToolError with ripgrep's own words when `pattern` is no regex of its kind."""
    if not pattern or "\0" in pattern:
        raise ToolError("pattern is empty" if not pattern else "pattern holds a NUL character")
    try:
        done = subprocess.run(
            [find_ripgrep(), "--no-config", "-e", pattern, "-"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, UnicodeEncodeError) as error:
        raise ToolError(f"the pattern cannot be given to ripgrep: {error}") from error
    except subprocess.TimeoutExpired:
        raise ToolError("ripgrep did not compile the pattern within 10 s") from None
    if done.returncode > 1:
        if b"is not allowed in a regex" in done.stderr and b"--multiline" in done.stderr:
            raise ToolError("a match lies within one line, so the pattern cannot hold a line end", "Search one line.")
        literal = "Put a backslash before each of ( ) [ ] { } . * + ? | ^ $ that stands for itself."
        raise ToolError(done.stderr.decode("utf-8", "replace").removeprefix("rg: ").strip(), literal)
