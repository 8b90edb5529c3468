"""Registers a handler for a row of the method table: validate, call, dump. Params are validated here and not by pygls,
so that a wrong field is answered by name."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pygls.lsp.server import LanguageServer

from aerix_server.lsp import errors
from aerix_server.protocol.messages import Wire
from aerix_server.protocol.methods import METHODS
from aerix_server.protocol.outcomes import AerixError, BadParams

logger = logging.getLogger(__name__)

Params = TypeVar("Params", bound=Wire)
Result = TypeVar("Result", bound=Wire)
Handler = Callable[[Any], Awaitable[Wire]]


def method(server: LanguageServer, name: str) -> Callable[[Handler], Handler]:
    """Decorates `async def handler(params: P) -> R`, the P and R of the table's row `name`."""
    row = METHODS[name]

    def register(handler: Handler) -> Handler:
        async def answer(params: Any) -> dict[str, Any]:
            read = read_params(row.params, params)
            return dump(await named_errors(handler(read)))

        server.feature(name)(answer)
        return handler

    return register


async def named_errors(work: Awaitable[Result]) -> Result:
    """The work's result; errors that have a name of ours become JSON-RPC errors."""
    try:
        return await work
    except (AerixError, BadParams) as error:
        raise errors.from_named(error) from error


def read_params(kind: type[Params], value: Any) -> Params:
    """Params by their names on the wire. Absent ones count as {}. Raises JsonRpcInvalidParams with the field named."""
    given = {} if value is None else value
    if not isinstance(given, dict):
        raise errors.invalid_params("params must be an object")
    names = {field.alias or name for name, field in kind.model_fields.items()}
    if unknown := sorted(given.keys() - names):
        logger.info("ignored unknown fields of %s: %s", kind.__name__, ", ".join(unknown))
    try:
        return kind.model_validate({name: given[name] for name in given.keys() & names})
    except ValidationError as error:
        raise errors.invalid_params(errors.wrong_fields(error)) from error


def dump(result: BaseModel) -> dict[str, Any]:
    """As it goes over the wire: camelCase, no fields that are None, but a session's `profile` is always there."""
    value: dict[str, Any] = result.model_dump(by_alias=True, exclude_none=True)
    single = [value["session"]] if isinstance(value.get("session"), dict) else []
    for session in single + value.get("sessions", []):
        session.setdefault("profile", None)
    return value
