"""Log-probabilities through the port: asked of a real pool, and left out where nobody asks."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from aerix_server.pool.port import Generated, GenerationOptions, NewSegment
from tests.pool.toy_pools import Toys

TEXT = '{"a": "\u00e9\U0001f600"}'
JSON = {"kind": "Json", "schema": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_generation_tells_of_its_tokens_where_that_is_asked(toys: Toys, wanted: bool) -> None:
    bound = await toys.bind(toys.settings(toys.script("one", TEXT)))
    state = await bound.pool.create("main", [NewSegment("s1", "user", "Hi")])
    done = None
    async with aclosing(bound.pool.generate(state.context, GenerationOptions(64, JSON, logprobs=wanted))) as items:
        async for item in items:
            done = item if isinstance(item, Generated) else done
    await bound.pool.aclose()
    assert done is not None and done.text == TEXT
    assert len(done.logprobs) == (done.usage.completion_tokens if wanted else 0)
    assert all(token.logprob <= 0 for token in done.logprobs)
    assert sum(token.forced for token in done.logprobs) == (done.usage.forced_tokens if wanted else 0)
    if wanted:
        assert "".join(token.text for token in done.logprobs).startswith('{"a": "')
