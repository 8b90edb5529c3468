"""Panics of native libraries written in Rust: each is a BaseException, which passes by every `except Exception`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class NativePanic(Exception):
    """A native library broke an invariant of its own; the message is what it said."""


@contextmanager
def panics_as_exceptions() -> Iterator[None]:
    """Inside the block a panic is raised as NativePanic. Their class has no module to import it from, only a name."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise NativePanic(str(error)) from error
