"""Why a run must end early: a signal, or a reader that left."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Final, Literal

from aerix_server.protocol.outcomes import EXIT_CODES

Why = Literal["signal", "reader"]
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Set once; a second signal leaves the process at once (the server sees its pipe close and ends by itself)."""

    def __init__(self) -> None:
        self.why: Why | None = None
        self.event = asyncio.Event()

    def ask(self, why: Why) -> None:
        if self.why is None:
            self.why = why
            self.event.set()

    def watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, and jobs in the background of a script
                loop.add_signal_handler(number, self._signal)

    def _signal(self) -> None:
        if self.why is not None:
            os._exit(EXIT_CODES["cancelled"])
        self.ask("signal")
