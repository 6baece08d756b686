"""JSON-RPC 2.0: one call or a batch, by name or by position; a call without an id gets no answer.

What must stay true: every call of a batch stands for itself, and they are done in their order; a fault of ours shows
no detail.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from horae.contracts.rpc.calls import UnknownMethod
from horae.core.model import Json
from horae.errors import (
    CODES,
    Conflict,
    Denied,
    Error,
    Invalid,
    Limited,
    NotFound,
    Stale,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from horae.web import documents

MAX_BATCH = 100
PARSE, REQUEST, METHOD, PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
# Below the codes of the standard, ours; the first that fits counts.
_NUMBERS: tuple[tuple[type[Error], int], ...] = (
    (UnknownMethod, METHOD),
    (Invalid, PARAMS),
    (Unauthenticated, -32001),
    (Denied, -32003),
    (NotFound, -32004),
    (Conflict, -32009),
    (Stale, -32009),
    (TooLarge, -32013),
    (Limited, -32029),
    (Unavailable, -32053),
)

Perform = Callable[[str, Any, int], Awaitable[Any]]  # method, params, number within the batch → result

log = structlog.get_logger(__name__)


def failure(error: Error, identity: Any = None) -> Json:
    number = next((number for kind, number in _NUMBERS if isinstance(error, kind)), None)
    if number is None:
        number = REQUEST if error.status < 500 else INTERNAL
    data: Json = {"code": error.code}
    if error.hint:
        data["hint"] = error.hint
    if error.problems:
        data["errors"] = [problem.as_dict() for problem in error.listed()]
    return _error(number, error.message, data, identity)


def _error(number: int, message: str, data: Json, identity: Any) -> Json:
    return {"jsonrpc": "2.0", "error": {"code": number, "message": message, "data": data}, "id": identity}


def _bad_request(message: str, identity: Any = None) -> Json:
    return _error(REQUEST, message, {"code": "E_INVALID"}, identity)


async def answer(body: bytes, perform: Perform) -> Any:
    """Return what a body is answered with; None when nothing is."""
    try:
        asked = documents.read_json(body)
    except Error as error:
        return _error(PARSE, error.message, {"code": error.code}, None)
    if not isinstance(asked, list):
        return await _one(asked, perform, 0)
    if not 1 <= len(asked) <= MAX_BATCH:
        return _bad_request(f"a batch has 1 to {MAX_BATCH} calls, got {len(asked)}")
    answers = [await _one(each, perform, number) for number, each in enumerate(asked)]
    return [each for each in answers if each is not None] or None


async def _one(asked: Any, perform: Perform, number: int) -> Json | None:
    wrong = _wrong(asked)
    identity = asked.get("id") if isinstance(asked, dict) and _is_identity(asked.get("id")) else None
    if wrong:
        return _bad_request(wrong, identity)
    result = await _result(asked, perform, number, identity)
    return result if "id" in asked else None


def _is_identity(value: Any) -> bool:
    return value is None or (isinstance(value, str | int | float) and not isinstance(value, bool))


def _wrong(asked: Any) -> str:
    """Return what keeps this from being a call."""
    if not isinstance(asked, dict):
        return "a call is an object"
    if asked.get("jsonrpc") != "2.0":
        return 'jsonrpc must be "2.0"'
    if not isinstance(asked.get("method"), str):
        return "method must be text"
    if not isinstance(asked.get("params", {}), dict | list):
        return "params must be an object or a list"
    return "" if _is_identity(asked.get("id")) else "id must be text, a number or null"


async def _result(asked: Json, perform: Perform, number: int, identity: Any) -> Json:
    try:
        result = await perform(asked["method"], asked.get("params", {}), number)
    except Error as error:
        if error.status < 500 or error.status == 503:
            return failure(error, identity)
        log.error("call failed", method=asked["method"][:60], exc_info=error)
    except Exception as error:
        log.error("call failed", method=asked["method"][:60], exc_info=error)
    else:
        return {"jsonrpc": "2.0", "result": result, "id": identity}
    return _error(INTERNAL, CODES["E_INTERNAL"], {"code": "E_INTERNAL"}, identity)
