"""The Model Context Protocol, as a server speaks it: what a line asks, and the line that answers it.

Two ways to begin are known. Up to 2025-11-25 a client says `initialize` first; from 2026-07-28 on each request names
its version, and `server/discover` says what there is. Nothing is remembered between two requests.

    lines    one JSON-RPC object each, in UTF-8; answers are ASCII, so that no character can end a line
    errors   of the protocol are JSON-RPC errors; what a tool could not do is the result of the tool, with `isError`
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from horae.errors import Error

Json = dict[str, Any]

BY_HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
BY_REQUEST = ("2026-07-28",)
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL, VERSION = (
    -32700, -32600, -32601, -32602, -32603, -32022,
)  # fmt: skip
_META = "io.modelcontextprotocol/"


class Refused(Exception):
    """A request that the protocol does not allow. `number` is its id, as far as that is known."""

    def __init__(self, code: int, message: str, data: Json | None = None, number: str | int | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data, self.number = code, message, data, number


class Asked(NamedTuple):
    """One message. Without an id nobody waits for an answer."""

    id: str | int | None
    method: str
    params: Json


Method = Callable[[Json], Json]


class Protocol:
    """Answers messages by the methods that are offered."""

    def __init__(self, about: Json, instructions: str, methods: Mapping[str, Method]) -> None:
        self._about = about
        self._instructions = instructions
        self._capabilities: Json = {"tools": {}, "resources": {}}
        self._methods: dict[str, Method] = {
            "initialize": self._initialize, "server/discover": self._discover, "ping": lambda params: {}, **methods,
        }  # fmt: skip

    def answer(self, asked: Asked) -> bytes:
        try:
            is_modern = _names_its_version(asked.params)
            method = self._methods.get(asked.method)
            if method is None:
                raise Refused(NO_METHOD, f"there is no method {asked.method[:100]!r}")
            result = method(asked.params)
        except Refused as refused:
            return failure(asked.id, refused)
        except Error as error:
            data = {"code": error.code, **({"hint": error.hint} if error.hint else {})}
            return failure(asked.id, Refused(INVALID_PARAMS, error.message, data))
        except Exception as error:  # a fault of ours: whoever asked gets an answer all the same
            return failure(asked.id, Refused(INTERNAL, f"{type(error).__name__}: {error}", {"code": "E_INTERNAL"}))
        return _line({"id": asked.id, "result": self._dress(asked.method, result) if is_modern else result})

    def _initialize(self, params: Json) -> Json:
        wanted = params.get("protocolVersion")
        version = wanted if wanted in BY_HANDSHAKE else BY_HANDSHAKE[-1]
        offered = {"protocolVersion": version, "capabilities": self._capabilities}
        return {**offered, "serverInfo": self._about, "instructions": self._instructions}

    def _discover(self, params: Json) -> Json:
        offered = {"supportedVersions": list(BY_REQUEST), "capabilities": self._capabilities}
        return {**offered, "instructions": self._instructions}

    def _dress(self, method: str, result: Json) -> Json:
        """Return a result as versions without a handshake have it. Nothing is worth keeping: all of it may change."""
        kept = {} if method == "tools/call" else {"ttlMs": 0, "cacheScope": "private"}
        return {**result, "resultType": "complete", **kept, "_meta": {f"{_META}serverInfo": self._about}}


def _names_its_version(params: Json) -> bool:
    meta = params.get("_meta")
    version = meta.get(f"{_META}protocolVersion") if isinstance(meta, dict) else None
    if version is None or version in BY_REQUEST:
        return version is not None
    data = {"requested": str(version)[:100], "supported": [*BY_REQUEST, *BY_HANDSHAKE]}
    raise Refused(VERSION, "this version of the protocol is not spoken here", data)


# ── lines ──


def read_line(line: bytes) -> Asked | None:
    """Return what a line asks; None for what needs no doing: an empty line, or an answer, since we ask nothing."""
    if not line.strip():
        return None
    try:
        said = json.loads(line.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(PARSE_ERROR, f"this is not a line of JSON: {error}"[:200]) from None
    if not isinstance(said, dict):
        raise Refused(INVALID_REQUEST, "one request in a line expected: a JSON object")
    if "method" not in said and ("result" in said or "error" in said):
        return None
    params, name, number = said.get("params", {}), said.get("method"), said.get("id")
    if "id" in said and (isinstance(number, bool) or not isinstance(number, str | int)):
        raise Refused(INVALID_REQUEST, "the id of a request is a text or a whole number")
    if said.get("jsonrpc") != "2.0" or not isinstance(name, str):
        raise Refused(INVALID_REQUEST, 'a request has "jsonrpc": "2.0" and a "method"', number=number)
    if not isinstance(params, dict):
        raise Refused(INVALID_PARAMS, "params must be a JSON object", number=number)
    return Asked(number, name, params)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def failure(number: str | int | None, refused: Refused) -> bytes:
    error: Json = {"code": refused.code, "message": refused.message}
    if refused.data:
        error["data"] = refused.data
    return _line({"id": number, "error": error})


def _line(message: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode("ascii") + b"\n"
