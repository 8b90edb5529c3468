"""The server's log: a file that rotates, written by a thread of its own, and warnings on stderr as one line each."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from queue import SimpleQueue
from typing import Final

LOG_BYTES: Final = 4 * 1024 * 1024
LOG_FILES: Final = 3


class LazyFile(RotatingFileHandler):
    """Makes the folder and the file with the first record; a log that cannot be written is said once and left."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8", delay=True, errors="backslashreplace"
        )
        self._failed = False

    def emit(self, record: logging.LogRecord) -> None:
        if self._failed:
            return
        try:
            Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            self.handleError(record)
            return
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the name is logging's
        self._failed = True
        print_line(f"aerix-server: warning: the log cannot be written: {sys.exc_info()[1]}")


class OneLine(logging.Handler):
    """Warnings on stderr: the message alone, never a traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        print_line(f"aerix-server: {record.levelname.lower()}: {' '.join(record.getMessage().split())}")


class Forward(QueueHandler):
    """Hands records over with their traceback, which only the file formats. (The stock one folds it into the text.)"""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record


def start(path: Path) -> Callable[[], None]:
    """Send all records of level INFO and up to the log. Gives what ends it, after the last record."""
    file = LazyFile(path)
    file.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    stderr = OneLine(logging.WARNING)
    records: SimpleQueue[logging.LogRecord] = SimpleQueue()
    listener = QueueListener(records, file, stderr, respect_handler_level=True)
    root = logging.getLogger()
    root.addHandler(Forward(records))
    root.setLevel(logging.INFO)
    logging.getLogger("pygls").setLevel(logging.WARNING)  # it logs each message it sends, prompts included
    listener.start()
    return listener.stop


def print_line(text: str) -> None:
    """To fd 2, whatever became of sys.stderr; nobody may be listening."""
    try:
        os.write(2, (text + "\n").encode("utf-8", "backslashreplace"))
    except OSError:
        return
