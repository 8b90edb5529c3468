"""Model references that lead nowhere are refused with a sentence, whatever they hold."""

from __future__ import annotations

import pytest

from caldrix.models.refs import resolve
from caldrix.protocol.errors import Refused


@pytest.mark.parametrize(
    "reference",
    ["", "nothing-known", "~nobody-of-this-name/x.gguf", "/no/such.gguf", "a\0b/x.gguf", "/", "/" + "x" * 4000],
)
def test_no_model_is_found(reference: str) -> None:
    with pytest.raises(Refused) as refused:
        resolve(reference)
    assert refused.value.code == "model_not_found"
