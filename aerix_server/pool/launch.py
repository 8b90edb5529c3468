"""Starting a pool daemon: its command, its process, its log. The pool outlives us and is shared by every server."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aerix_server.config.settings import Settings
from aerix_server.pool.references import MAIN
from aerix_server.protocol.folders import aerix_folder
from aerix_server.protocol.outcomes import AerixError

LOCK_HELD: Final = 3
"""The exit code of a pool that found another one starting."""
_TAIL_BYTES: Final = 2000
_TAIL_LINES: Final = 5


@dataclass(frozen=True)
class Launched:
    """A started pool process and where its output goes, from `log_from` bytes on."""

    process: subprocess.Popen[bytes]
    log: Path
    log_from: int

    def tail(self) -> str:
        """The last lines this process wrote."""
        with self.log.open("rb") as file:
            file.seek(max(self.log_from, self.log.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
        return "\n".join([line for line in lines if line.strip()][-_TAIL_LINES:])


def pool_command(settings: Settings, socket: str, model: str) -> list[str]:
    """The words that start a pool with the main model. Raises AerixError when the command is not there."""
    words = shlex.split(settings.pool.caldrix)
    found = shutil.which(words[0]) if words else None
    beside = Path(sys.executable).with_name(words[0]) if words and "/" not in words[0] else None
    # An editor starts us without the environment's folder on PATH.
    if found is None and beside is not None and os.access(beside, os.X_OK):
        found = str(beside)
    if found is None:
        raise AerixError(
            "pool_unavailable",
            f"no pool answers on {socket}, and the command {settings.pool.caldrix!r} that would start one is not found",
            "install caldrix, or set pool.caldrix to its command",
        )
    return [found, *words[1:], "pool", "--socket", socket, "--load", f"{model}={MAIN}", *settings.main.flags]


def start_log() -> Path:
    """`$XDG_STATE_HOME/aerix/pool-start.log`, its folder made."""
    folder = aerix_folder(os.environ, "STATE")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / "pool-start.log"


def launch(command: Sequence[str]) -> Launched:
    """Start the command in its own process group, its output appended to the start log. Blocks for milliseconds.

    Raises AerixError when it cannot be started.
    """
    try:
        log = start_log()
        with log.open("ab") as output:
            begins = output.tell()
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                close_fds=True,
            )
    except OSError as error:
        raise AerixError(
            "pool_unavailable", f"the pool could not be started ({shlex.join(command)}): {error}"
        ) from error
    # Whoever starts a process must take its exit status, or it stays a zombie; ours may end long before us or after.
    threading.Thread(target=process.wait, name="pool-reaper", daemon=True).start()
    return Launched(process, log, begins)
