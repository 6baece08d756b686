"""How failures look to administration clients: {"code", "message", "details"}, where code is that of gRPC.

One table for both protocols: over HTTP the contract answers what makes no sense with 400, whatever the reason.
"""

from __future__ import annotations

from horae.errors import Error
from horae.web import http

INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED = 3, 5, 6, 7
RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 8, 9, 12, 13, 14, 16

# Status of the error → (status of this contract, gRPC code). A status that is not here keeps itself.
_BY_STATUS: dict[int, tuple[int, int]] = {
    400: (400, INVALID_ARGUMENT),
    401: (401, UNAUTHENTICATED),
    403: (403, PERMISSION_DENIED),
    404: (404, NOT_FOUND),
    405: (405, UNIMPLEMENTED),
    409: (400, FAILED_PRECONDITION),
    412: (400, FAILED_PRECONDITION),
    413: (413, RESOURCE_EXHAUSTED),
    422: (400, INVALID_ARGUMENT),
    429: (429, RESOURCE_EXHAUSTED),
    500: (500, INTERNAL),
    503: (503, UNAVAILABLE),
}
_BY_CODE = {"E_KEY_TAKEN": (400, ALREADY_EXISTS), "E_IDEMPOTENCY_MISMATCH": (400, ALREADY_EXISTS)}


def statuses_of(error: Error) -> tuple[int, int]:
    """(HTTP status, gRPC code)."""
    return _BY_CODE.get(error.code) or _BY_STATUS.get(error.status) or (error.status, INVALID_ARGUMENT)


def message_of(error: Error) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _render(error: Error, request: http.Request) -> http.Reply:
    status, code = statuses_of(error)
    body = {"code": code, "message": message_of(error), "details": []}
    return http.reply(status, body, http.extra_headers(error))


SHAPE = http.Shape(
    _render,
    schema={
        "type": "object",
        "required": ["code", "message", "details"],
        "properties": {"code": {"type": "integer"}, "message": {"type": "string"}, "details": {"type": "array"}},
    },
)
