"""Exceptions → JSON-RPC errors. What is ours to know (a traceback, a path of our source) stays in the log."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams

from aerix_server.protocol.outcomes import AerixError, BadParams

AERIX_ERROR: Final = 4000
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INTERNAL_ERROR: Final = -32603
NOT_INITIALIZED: Final = -32002
CANCELLED: Final = -32800


def invalid_params(message: str) -> JsonRpcInvalidParams:
    return JsonRpcInvalidParams(message)


def invalid_request(message: str) -> JsonRpcException:
    return JsonRpcException(message, code=INVALID_REQUEST)


def from_named(error: AerixError | BadParams) -> JsonRpcException:
    """4000 with its name and hint, or -32602 with the field named."""
    if isinstance(error, BadParams):
        return invalid_params(error.message)
    data: dict[str, Any] = {"code": error.code}
    if error.hint:
        data["hint"] = error.hint
    return JsonRpcException(error.message, code=AERIX_ERROR, data=data)


def wrong_fields(error: ValidationError) -> str:
    """Each wrong field with what is wrong with it; the values themselves are not repeated."""
    parts = []
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        field = ".".join(str(step) for step in fault["loc"])
        parts.append(f"{field}: {fault['msg']}" if field else fault["msg"])
    return "; ".join(parts)


def internal() -> JsonRpcException:
    return JsonRpcException("Internal error; the server's log has the details.", code=INTERNAL_ERROR)
