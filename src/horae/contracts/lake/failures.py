"""How failures look to clients of this contract, and where they put what proves who asks."""

from __future__ import annotations

from urllib.parse import parse_qs

from horae import errors
from horae.core.model import Json
from horae.web import http

JSON_CODES = frozenset({"E_SYNTAX", "E_JSON_SYNTAX", "E_DUP_KEY", "E_DEPTH", "E_ENCODING", "E_BODY_EMPTY"})

# The first row that fits says what the client gets. This contract has no 409 or 422, and 404 only
# where there is no such address.
_ROWS: tuple[tuple[type[errors.Error], int, str], ...] = (
    (errors.Unauthenticated, 401, "not_authenticated"),
    (errors.Denied, 403, "insufficient_permission"),
    (http.NoRoute, 404, "not_supported"),
    (errors.NotFound, 400, "bad_request"),
    (errors.Conflict, 400, "bad_request"),
    (errors.Stale, 400, "bad_request"),
    (errors.Malformed, 400, "bad_request"),
    (errors.MediaType, 400, "bad_request"),
    (errors.Invalid, 400, "invalid_param"),
    (errors.TooLarge, 413, "bad_request"),
    (errors.Limited, 429, "quota_exceed"),
    (errors.Unavailable, 503, "db_execute_error"),
    (http.BadMethod, 405, "not_supported"),
    (http.BadHost, 421, "bad_request"),
    (http.BadHeaders, 431, "bad_request"),
    (errors.Error, 500, "internal_error"),
)
_SCHEMA: Json = {
    "type": "object",
    "required": ["code", "reason", "message"],
    "properties": {"code": {"type": "integer"}, "reason": {"type": "string"}, "message": {"type": "string"}},
}


def _render(error: errors.Error, _: http.Request) -> http.Reply:
    status, reason = next((status, reason) for kind, status, reason in _ROWS if isinstance(error, kind))
    if error.code in JSON_CODES:
        reason = "invalaid_json_format"  # so written in the contract
    message = f"{error.message}; {error.hint}" if error.hint else error.message
    body = {"code": status, "reason": reason, "message": message}
    return http.reply(status, body, http.extra_headers(error))


SHAPE = http.Shape(_render, schema=_SCHEMA)


def credential(request: http.Request) -> str | None:
    """Return the service token or the session, whichever of the four places has one."""
    sent = request.header(b"access-token") or request.header(b"authorization") or http.cookie(request, "ssid")
    if not sent:
        found = parse_qs(request.scope["query_string"].decode("latin-1")).get("api_key")
        sent = found[0] if found else None
    scheme, _, text = (sent or "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else sent
