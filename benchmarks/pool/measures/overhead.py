"""What the daemon adds to a token over a bare llama.cpp loop: same prompt, same tokens, same threads."""

from __future__ import annotations

from typing import Final

from benchmarks.pool import prompts
from benchmarks.pool.bare import Decoded, decode
from benchmarks.pool.bench import WINDOW, Bench
from benchmarks.pool.caldrix_pool import Parts, ask, create
from benchmarks.pool.errors import NotMeasured
from benchmarks.pool.ratio import Ratio, Wanted, percent_over
from benchmarks.pool.run import MILLISECONDS
from caldrix.protocol.messages import Done

NAME: Final = "overhead"
TOKENS: Final = 128
WANTED: Final = Wanted("at most", 3)
PARTS: Final[Parts] = [("user", prompts.STORY)]


async def measure(bench: Bench) -> list[Ratio]:
    """A round before warms both sides and compares their tokens; then each repeat asks the pool, then the loop."""
    pool = await bench.pool()
    (ids,) = await bench.ids([PARTS])
    ours = await _ids(bench)
    bare = await _bare(bench, ids, len(ours))
    note = _alike(ours, list(bare.ids))
    client_ms, daemon_ms, bare_ms = [], [], []
    for _ in bench.rounds:
        run = await ask(pool.client, PARTS, len(bare.ids), draft="off")
        if run.prompt_tokens != len(ids):
            raise NotMeasured(f"the pool's prompt has {run.prompt_tokens} tokens, the loop's {len(ids)}")
        client_ms.append(run.token_ms)
        daemon_ms.append(MILLISECONDS * run.decode_s / (run.tokens - 1))  # the first one is the prefill's
        bare_ms.append((await _bare(bench, ids, len(ours))).token_ms)
        bench.say(f"overhead: {client_ms[-1]:.2f} ms a token, bare {bare_ms[-1]:.2f} ms")
    return [
        bench.ratio(
            NAME,
            "a token at the client over a bare loop",
            percent_over(client_ms, bare_ms),
            {"client, ms": client_ms, "bare loop, ms": bare_ms},
            unit="%",
            wanted=WANTED,
            note=note,
        ),
        bench.ratio(
            NAME,
            "a token by the daemon's clock over a bare loop",
            percent_over(daemon_ms, bare_ms),
            {"daemon, ms": daemon_ms, "bare loop, ms": bare_ms},
            unit="%",
        ),
    ]


async def _bare(bench: Bench, ids: list[int], tokens: int) -> Decoded:
    threads = (await bench.pool()).member.threads
    decoded = await bench.child.call(decode, bench.model.path, threads, WINDOW, ids, tokens)
    if len(decoded.ids) < 2:
        raise NotMeasured(f"the bare loop ended its turn after {len(decoded.ids)} tokens")
    return decoded


async def _ids(bench: Bench) -> list[int]:
    """The tokens that the pool generates."""
    client = (await bench.pool()).client
    context = await create(client, PARTS)
    try:
        async for frame in client.generate(context.context, TOKENS, logprobs=0, draft="off"):
            if isinstance(frame, Done):
                return [entry.token for entry in frame.logprobs or ()]
    finally:
        await client.drop(context.context)
    raise NotMeasured("the pool's generation gave no text")


def _alike(ours: list[int], bare: list[int]) -> str:
    if ours == bare:
        return f"the same {len(ours)} tokens"
    pairs = zip(ours, bare, strict=False)
    place = next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(bare)))
    return f"tokens part at {place}: {len(ours)} of the pool, {len(bare)} of the loop"
