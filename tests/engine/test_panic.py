"""A panic of native code: no Exception, and yet one generation's failure and nobody else's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from caldrix.engine.backend import Logits, Row
from caldrix.engine.jobs import Failed, Part
from caldrix.engine.member import LoadedMember, Serving
from caldrix.engine.panic import NativePanic, panics_as_exceptions
from tests.doubles.toy_backend import Script, ToyBackend
from tests.engine.conftest import start


class PanicException(BaseException):
    """As pyo3 names it."""


class Panics(ToyBackend):
    left = 0

    def decode(self, rows: Sequence[Row]) -> Logits:
        if self.left:
            self.left -= 1
            raise PanicException("index out of bounds")
        return super().decode(rows)


def test_a_member_outlives_a_panic() -> None:
    backend = Panics(Script(["hello"]))
    member = LoadedMember(backend, Serving(1 << 20))
    try:
        backend.left = 1
        failed = start(member, [Part("user", "one")]).until(Failed)
        assert isinstance(failed, Failed) and failed.code == "engine_failed" and "PanicException" in failed.message
        assert start(member, [Part("user", "two")]).finished().text == "hello"
    finally:
        member.close()


def test_only_panics_are_turned_into_exceptions() -> None:
    with pytest.raises(NativePanic, match="out of bounds"), panics_as_exceptions():
        raise PanicException("out of bounds")
    for other in (KeyboardInterrupt, ValueError):
        with pytest.raises(other), panics_as_exceptions():
            raise other
