"""Loading a remote member: ask the server what it can, try what it says, and put it into the member's notes."""

from __future__ import annotations

import asyncio

from caldrix.engine.api import LoadProgress, ServingFlags
from caldrix.engine.jobs import Part
from caldrix.engine.template import Renderer
from caldrix.protocol.errors import Refused
from caldrix.protocol.messages import Role
from caldrix.remote.address import parse_address
from caldrix.remote.detect import Found, detect
from caldrix.remote.dialect import Dialect
from caldrix.remote.member import Abilities, RemoteMember
from caldrix.remote.probe import find_means, generates, scores_exactly
from caldrix.remote.server import ANSWER_S, Server, ServerFault, api_key
from caldrix.remote.vocabulary import learn_vocabulary


def load_remote(
    reference: str, flags: ServingFlags, progress: LoadProgress, used_bytes: int, stall_s: float = ANSWER_S
) -> RemoteMember:
    """Ask a server what it can, and serve it as a member. See `caldrix.engine.api.Loader`."""
    server = Server(parse_address(reference), api_key(), stall_s)
    try:
        progress("load", 0, 3)
        found = detect(server)
        progress("load", 1, 3)
        template, notes = found.dialect.template()
        renderer = Renderer(learn_vocabulary(found.dialect, template), found.dialect.tokenize, template)
        notes += _differences(found.dialect, renderer)
        progress("load", 2, 3)
        can = asyncio.run(_abilities(server, found, renderer, flags, notes))
        member = RemoteMember(reference, server, found, renderer, can, flags.max_batch)
        progress("load", 3, 3)
    except ServerFault as fault:
        server.close()
        raise Refused("model_refused", f"{fault}.") from fault
    except BaseException:
        server.close()
        raise
    return member


async def _abilities(
    server: Server, found: Found, renderer: Renderer, flags: ServingFlags, notes: list[str]
) -> Abilities:
    dialect = found.dialect
    trial = Server(server.address, api_key(), ANSWER_S)
    try:
        await generates(trial, dialect, renderer)
        means, told = await find_means(trial, dialect, renderer)
        unscored = await scores_exactly(trial, dialect, renderer)
    finally:
        await trial.close_streams()
        trial.close()
    if "json" not in means:
        told.append(
            "the server enforces no JSON schema: an answer is checked when it is whole, asked for again up to twice "
            "when it is wrong, and shown only then"
        )
    if unscored:
        told.append(f"OneOf constraints are refused, since exact scores cannot be had: {unscored}")
    window = min(dialect.window, flags.window or dialect.window)
    served = f"served by {dialect.name} {found.version} at {server.address.root}, model {found.model}"
    counted = "tokens are counted by the server's own tokenizer"
    every = (served, *server.address.notes(), counted, *told, *dialect.limits(), *_window_note(dialect, flags), *notes)
    return Abilities(window, means, unscored is None, every)


def _window_note(dialect: Dialect, flags: ServingFlags) -> list[str]:
    if flags.window is None or flags.window <= dialect.window:
        return []
    return [f"--window {flags.window} was asked for; the server was started with {dialect.window}"]


def _differences(dialect: Dialect, renderer: Renderer) -> list[str]:
    """A note where a prompt is not what the server's own chat endpoint would make of it."""
    chat: list[tuple[Role, str]] = [
        ("system", "Answer briefly."),
        ("user", "What is 2 + 2?\n\n  `x = {}`"),
        ("assistant", "4"),
        ("user", "And  3?"),
    ]
    try:
        theirs = dialect.chat_ids(chat)
    except ServerFault as fault:
        return [f"the server's chat endpoint refuses a usual chat, which is served here in another way: {fault}"]
    ours = list(renderer.render([Part(role, text) for role, text in chat]).ids)
    if ours == theirs:
        return []
    return [
        f"prompts are not quite what the server's chat endpoint would make: {len(ours)} tokens of a trial chat against "
        f"{len(theirs)}"
    ]
