"""JSON-RPC as the specification wants it, over pygls: every request with an id gets exactly one answer.

pygls gives the LSP part (initialize, document sync, cancelling). Its own dispatch leaves a request whose params do not
fit without an answer, puts tracebacks in answers and ends the process on `exit`; that part is replaced here.
"""

from __future__ import annotations

import contextvars
import json
import logging
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import Future
from functools import partial
from typing import Any

import cattrs
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcMethodNotFound
from pygls.protocol import LanguageServerProtocol, default_converter, lsp_method
from pygls.protocol.json_rpc import JsonRPCNotification, JsonRPCRequestMessage

from aerix_server.lsp import errors
from aerix_server.lsp.frames import MESSAGE_LIMIT, TooLong, frame
from aerix_server.protocol.methods import METHODS

logger = logging.getLogger(__name__)


def converter() -> cattrs.Converter:
    """lsprotocol's converter; the params of methods it does not know stay plain dicts and may be absent."""
    made: cattrs.Converter = default_converter()  # type: ignore[no-untyped-call]
    made.register_structure_hook(
        JsonRPCRequestMessage,
        lambda data, _: JsonRPCRequestMessage(data["id"], data["method"], data["jsonrpc"], data.get("params")),
    )
    made.register_structure_hook(
        JsonRPCNotification, lambda data, _: JsonRPCNotification(data["method"], data["jsonrpc"], data.get("params"))
    )
    return made


class Protocol(LanguageServerProtocol):
    """One client's connection. `on_exit` is told the exit code that the client's `exit` means."""

    on_exit: Callable[[int], None]
    experimental: dict[str, Any]
    initialized = False

    # --- messages in ------------------------------------------------------------------------------------------------

    def receive(self, body: bytes | TooLong) -> None:
        """Handle one message as it came off the wire. Never raises for what a client sent."""
        if isinstance(body, TooLong):
            fault = f"The message has {body.length} bytes; the limit is {MESSAGE_LIMIT}."
            self._refuse(None, errors.invalid_request(fault))
            return
        try:
            message = json.loads(body, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            logger.warning("unreadable message of %d bytes: %s", len(body), error)
            self._refuse(None, JsonRpcException("The message is not JSON.", code=errors.PARSE_ERROR))
            return
        if not isinstance(message, dict):
            self._refuse(None, errors.invalid_request("A message is one JSON object; there are no batches."))
            return
        contextvars.copy_context().run(self._dispatch, message)

    def _dispatch(self, message: dict[str, Any]) -> None:
        if fault := _malformed(message):
            self._refuse(_readable_id(message), errors.invalid_request(fault))
        elif "method" not in message:
            logger.warning("ignored an answer to a request that was never sent")
        elif "id" in message:
            self._request(message)
        else:
            self._notification(message)

    def _request(self, message: dict[str, Any]) -> None:
        msg_id, method = message["id"], message["method"]
        try:
            self._gate(msg_id, method)
            handler = self._get_handler(method)
            params = self._params(message)
        except JsonRpcMethodNotFound:
            self._refuse(msg_id, JsonRpcMethodNotFound(f"There is no method {method}."))
            return
        except JsonRpcException as error:
            self._refuse(msg_id, error)
            return
        self._ctx_msg_id.set(msg_id)
        answer = partial(self._send_handler_result, msg_id=msg_id)
        self._execute_handler(msg_id, handler, answer, args=(params,))

    def _gate(self, msg_id: str | int, method: str) -> None:
        if not self.initialized and method != types.INITIALIZE:
            raise JsonRpcException("The first request must be initialize.", code=errors.NOT_INITIALIZED)
        if self.initialized and method == types.INITIALIZE:
            raise errors.invalid_request("The connection is initialized already.")
        if self._shutdown:
            raise errors.invalid_request("The connection was shut down.")
        if msg_id in self._request_futures:
            raise errors.invalid_request(f"The id {msg_id!r} belongs to a request that is still open.")

    def _notification(self, message: dict[str, Any]) -> None:
        method = message["method"]
        if method != types.EXIT and (self._shutdown or not self.initialized or _is_request(method)):
            logger.warning("ignored the notification %s", method)
            return
        try:
            params = self._params(message)
            if method == types.CANCEL_REQUEST:
                self._handle_cancel_notification(params.id)
                return
            handler = self._get_handler(method)
        except JsonRpcMethodNotFound:
            logger.info("ignored the unknown notification %s", method)
            return
        except JsonRpcException as error:
            logger.warning("ignored the notification %s: %s", method, error)
            return
        key = str(uuid.uuid4())
        self._execute_handler(key, handler, partial(self._notified, key=key, method=method), args=(params,))

    def _params(self, message: dict[str, Any]) -> Any:
        """Raises JsonRpcInvalidParams that names the field."""
        kind = self.get_message_type(message["method"])
        if kind is None:
            return message.get("params")
        try:
            return getattr(self._converter.structure(message, kind), "params", None)
        except Exception as error:
            faults = cattrs.transform_error(error, path="message")
            raise errors.invalid_params("; ".join(faults).replace("message.params", "params")) from error

    # --- answers out ------------------------------------------------------------------------------------------------

    def _send_handler_result(self, future: Future[Any], *, msg_id: str | int) -> None:
        self._request_futures.pop(msg_id, None)
        if future.cancelled():
            self._refuse(msg_id, JsonRpcException("The request was cancelled.", code=errors.CANCELLED))
            return
        error = future.exception()
        if error is None:
            self._send_response(msg_id, result=future.result())
        elif isinstance(error, JsonRpcException):
            self._refuse(msg_id, error)
        else:
            logger.error("request %r failed", msg_id, exc_info=error)
            self._refuse(msg_id, errors.internal())

    def _notified(self, future: Future[Any], *, key: str, method: str) -> None:
        self._request_futures.pop(key, None)
        if not future.cancelled() and (error := future.exception()) is not None:
            logger.error("notification %s failed", method, exc_info=error)

    def _refuse(self, msg_id: str | int | None, error: JsonRpcException) -> None:
        value = {"code": error.code, "message": error.message}
        if error.data is not None:
            value["data"] = error.data
        self._send_data({"jsonrpc": self.VERSION, "id": msg_id, "error": value})

    def _send_data(self, data: Any) -> None:
        if self.writer is None:
            return
        body = json.dumps(data, default=self._serialize_message, separators=(",", ":"))
        self.writer.write(frame(body.encode("ascii")))

    def cancel_open(self) -> None:
        """Cancel what is still being answered; each request gets its answer."""
        for future in list(self._request_futures.values()):
            future.cancel()

    # --- life of a connection ---------------------------------------------------------------------------------------

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        result = yield from super().lsp_initialize(params)
        result.capabilities.experimental = self.experimental
        self.initialized = True
        return result

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_: Any) -> None:  # type: ignore[override]  # pygls's own one calls sys.exit inside the loop
        self.on_exit(0 if self._shutdown else 1)


def _malformed(message: dict[str, Any]) -> str | None:
    if message.get("jsonrpc") != "2.0":
        return 'A message holds "jsonrpc": "2.0".'
    if "id" in message and _readable_id(message) is None and "method" in message:
        return "An id is a string or an integer."
    if "method" in message:
        return None if isinstance(message["method"], str) else "A method is a string."
    return None if "result" in message or "error" in message else "A message has a method, a result or an error."


def _readable_id(message: dict[str, Any]) -> str | int | None:
    value = message.get("id")
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _is_request(method: str) -> bool:
    known = types.METHOD_TO_TYPES.get(method)
    return method in METHODS or (known is not None and known[1] is not None)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
