"""What a server really enforces, found out by trying it once: a field that it does not know it silently ignores."""

from __future__ import annotations

import asyncio
import json
from typing import Final

from caldrix.engine.jobs import Part
from caldrix.engine.template import Renderer
from caldrix.protocol.messages import Json, Lark, Regex
from caldrix.remote.dialect import Ask, Dialect, Grammar, Means
from caldrix.remote.server import Server, ServerFault
from caldrix.remote.vllm import Vllm

WORD: Final = "zq7"
"""No model says this of itself."""
_TRIALS: Final[dict[Means, Grammar]] = {
    "json": Json(kind="Json", schema_={"type": "string", "enum": [WORD]}),
    "regex": Regex(kind="Regex", pattern="zq[7]"),
    "lark": Lark(kind="Lark", grammar=f'start: "{WORD}"'),
}
PROBE_TOKENS: Final = 16


async def find_means(server: Server, dialect: Dialect, renderer: Renderer) -> tuple[frozenset[Means], list[str]]:
    """The kinds of constraint that the server enforces, and a note about each. Raises ServerFault when it breaks."""
    ids = (await asyncio.to_thread(renderer.render, [Part("user", "Hello")])).ids
    found: set[Means] = set()
    notes = []
    for means, field in dialect.means():
        if means in found:
            continue
        why = await _unenforced(server, dialect, ids, means)
        if why is not None:
            notes.append(f"{means.capitalize()} constraints are not enforced by the server's field {field}: {why}")
            continue
        dialect.use(means)
        found |= {"lark", "regex", "json"} if means == "lark" else {means}
        kinds = "Json, Regex and Lark" if means == "lark" else means.capitalize()
        notes.append(f"{kinds} constraints are enforced by the server, by its field {field}")
    if isinstance(dialect, Vllm) and not found and not dialect.older:
        dialect.older = True
        return await find_means(server, dialect, renderer)
    return frozenset(found), notes


async def scores_exactly(server: Server, dialect: Dialect, renderer: Renderer) -> str | None:
    """Why the server tells no exact scores of options; None when it does."""
    ids = (await asyncio.to_thread(renderer.render, [Part("user", "Yes or no?")])).ids
    options = [await asyncio.to_thread(dialect.tokenize, text) for text in ("Yes", "No")]
    try:
        scores = await dialect.score(server.answer, ids, options)
    except ServerFault as fault:
        if fault.status is None and "did not tell" not in str(fault):
            raise
        return str(fault)
    return None if all(score <= 0 for score in scores) else f"its scores are no log-probabilities: {scores}"


async def generates(server: Server, dialect: Dialect, renderer: Renderer) -> None:
    """Raises ServerFault where not even a few tokens without a constraint can be had."""
    ids = (await asyncio.to_thread(renderer.render, [Part("user", "Hello")])).ids
    await _said(server, dialect, Ask(ids, 2))


async def _unenforced(server: Server, dialect: Dialect, ids: tuple[int, ...], means: Means) -> str | None:
    """Why the server does not enforce constraints of this kind; None when it does."""
    try:
        said = await _said(server, dialect, Ask(ids, PROBE_TOKENS, constraint=_TRIALS[means]))
    except ServerFault as fault:
        if fault.status not in (400, 422, 500, 501):
            raise
        return str(fault)
    text = _unquoted(said) if means == "json" else said
    return None if text == WORD else "it was ignored in a trial"


async def _said(server: Server, dialect: Dialect, ask: Ask) -> str:
    url, body = dialect.generation(ask)
    read = dialect.reader()
    said = ""
    async with server.stream(url, body) as events:
        async for event in events:
            if not event:
                break
            said += read(event).text
    return said


def _unquoted(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
