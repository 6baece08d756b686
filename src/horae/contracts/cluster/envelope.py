"""The one form of every answer of this contract: `{success, data, message, errorCode, timestamp}`, nulls included.

What must stay true: a failure leaves in the same form, with an error code of `WORDS` (or the one its row names for
what does not exist) and the status that the contract has for it; the timestamp is of the process that answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horae.contracts.cluster.vocabulary import refusal
from horae.core.model import Json, Moment
from horae.core.roles import Permission
from horae.core.time import moments
from horae.errors import Error
from horae.service.external.transitions import WrongStage
from horae.web import http, params

TAG = "segment contract"
JOB, WORKER, ASSIGNMENT = "JOB_NOT_FOUND", "WORKER_NOT_FOUND", "ASSIGNMENT_NOT_FOUND"

# Horae's status → the contract's status and error code; what does not exist is named by the row.
WORDS: dict[int, tuple[int, str]] = {
    400: (400, "VALIDATION_ERROR"),
    401: (401, "UNAUTHORIZED"),
    403: (403, "FORBIDDEN"),
    404: (404, "NOT_FOUND"),
    405: (405, "METHOD_NOT_ALLOWED"),
    409: (409, "INVALID_STATE"),
    412: (409, "INVALID_STATE"),
    413: (413, "PAYLOAD_TOO_LARGE"),
    415: (400, "VALIDATION_ERROR"),
    421: (421, "WRONG_HOST"),
    422: (400, "VALIDATION_ERROR"),
    429: (429, "TOO_MANY_REQUESTS"),
    431: (431, "HEADERS_TOO_LARGE"),
    500: (500, "INTERNAL_ERROR"),
    503: (503, "SERVICE_UNAVAILABLE"),
}
BY_CODE = {"E_NO_LEADER": "NO_LEADER", "E_AT_CAPACITY": "WORKER_AT_CAPACITY", "E_NO_WORKER": WORKER}

FAILURE: Json = {
    "type": "object",
    "required": ["success", "data", "message", "errorCode", "timestamp"],
    "properties": {
        "success": {"const": False},
        "data": {"type": "null"},
        "message": {"type": "string"},
        "errorCode": {"type": "string"},
        "timestamp": {"type": "string", "format": "date-time"},
    },
}


class Envelope:
    """Makes answers; `now` is the clock of this process."""

    def __init__(self, now: Callable[[], Moment]) -> None:
        self._now = now

    def give(self, data: Any) -> http.Reply:
        return http.reply(200, self._filled(True, data, None, None))

    def shape(self, missing: str) -> http.Shape:
        """Return how failures look at an address where `missing` says what was not found."""
        return http.Shape(lambda error, request: self._failure(error, missing), schema=FAILURE)

    def _failure(self, error: Error, missing: str) -> http.Reply:
        status, word = WORDS.get(error.status, WORDS[500])
        word = BY_CODE.get(error.code) or (missing if error.status == 404 else word)
        said = refusal(error) if isinstance(error, WrongStage) else error.message
        message = f"{said}; {error.hint}" if error.hint else said
        return http.reply(status, self._filled(False, None, message, word), http.extra_headers(error))

    def _filled(self, success: bool, data: Any, message: str | None, code: str | None) -> Json:
        stamp = moments.format_moment(self._now())
        return {"success": success, "data": data, "message": message, "errorCode": code, "timestamp": stamp}


class Rows:
    """Rows of the table of operations, all of this contract's form."""

    def __init__(self, envelope: Envelope) -> None:
        self._shapes = {word: envelope.shape(word) for word in (JOB, WORKER, ASSIGNMENT)}
        self.unknown = envelope.shape(WORDS[404][1])  # of addresses that there are not

    def row(
        self,
        method: str,
        path: str,
        endpoint: http.Endpoint,
        summary: str,
        *queries: params.Param,
        missing: str = WORKER,
        errors: tuple[int, ...] = (404, 409),
        scope: str = "user",
        needs: Permission | None = None,
    ) -> http.Operation:
        return http.Operation(
            method, path, endpoint, TAG, summary, "application/json", params=queries, errors=errors,
            shape=self._shapes[missing], scope=scope, is_lenient=True, needs=needs,
        )  # fmt: skip
