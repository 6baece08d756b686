"""Horae as the RPC interface (source document 2), over JSON-RPC 2.0. Over gRPC the same calls are in grpc.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from horae.contracts.rpc import jsonrpc
from horae.contracts.rpc.caller import Caller
from horae.contracts.rpc.calls import Calls
from horae.core.roles import Permission
from horae.errors import Error
from horae.service import Services
from horae.web import http, params
from horae.web.auditing import deed_of
from horae.web.streams import Streams


def _failure(error: Error, request: http.Request) -> http.Reply:
    """Return what never became a call; a call that fails is answered with 200."""
    return http.Reply(error.status, http.encode(jsonrpc.failure(error)), headers=http.extra_headers(error))


SHAPE = http.Shape(
    _failure,
    schema={
        "type": "object",
        "required": ["jsonrpc", "error", "id"],
        "properties": {"jsonrpc": {"const": "2.0"}, "error": {"type": "object"}, "id": {"type": "null"}},
    },
)


class Rpc:
    def __init__(self, services: Services, streams: Streams) -> None:
        self._calls = Calls(services)

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation(
                "POST", "/rpc", self.receive, "rpc", "Call a method, or several", "application/json",
                also={204: ""}, errors=(413,), params=(params.IDEMPOTENCY,), shape=SHAPE, is_lenient=True,
                needs=Permission.READ,  # and more, for some calls: see calls.py
            )
        ]  # fmt: skip

    def areas(self) -> list[http.Area]:
        return [http.Area("/rpc", SHAPE)]

    async def receive(self, request: http.Request) -> http.Answer:
        """JSON-RPC 2.0. A call that fails is answered with 200 and an error; one without an id, with nothing."""
        body = await request.read()
        promise = request.idempotency(body)

        async def perform(method: str, params: Any, number: int) -> Any:
            key = promise and replace(promise, scope=f"{promise.scope} #{number}")
            deed = replace(deed_of(request, None), request_id=f"{request.id}#{number}")
            caller = Caller(http.principal(request), key, deed)
            return await self._calls.call(method, params, caller)

        answer = await jsonrpc.answer(body, perform)
        return http.Reply(204) if answer is None else http.reply(200, answer)
