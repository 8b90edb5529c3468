"""One request's cancellation: set once, seen by whoever serves it. Belongs to the event loop."""

from __future__ import annotations

from collections.abc import Callable


class Cancellation:
    """`cancel` may be called any number of times; each callback runs once, at once if it is too late already."""

    def __init__(self) -> None:
        self._cancelled = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        if self._cancelled:
            return
        self._cancelled = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_cancel(self, callback: Callable[[], None]) -> None:
        if self._cancelled:
            callback()
        else:
            self._callbacks.append(callback)
