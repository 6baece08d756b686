"""What every HTTP operation needs: requests, answers, problems, credentials.

An operation is a row: method, path, endpoint, parameters, answers. The row is read three times: by the
gate (app.py) to find and check a request, by openapi.py to describe it, by the docs page to show it.
So what is checked and what is documented cannot drift apart.

What must stay true:
- Every failure leaves as problem+json with a code of errors.CODES, or in the shape of the contract that the
  address belongs to; a fault of ours shows no detail.
- Nothing is built from the Host header.
- One answer is one `send` of headers and one of body. This is the hot path: 5,000 submits a second.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from horae.core import model
from horae.core.definitions import Idempotency
from horae.core.identity import Principal, Session
from horae.core.roles import Permission
from horae.core.time import moments
from horae.errors import (
    CODES,
    Denied,
    Error,
    Invalid,
    Malformed,
    NotFound,
    Stale,
    TooLarge,
    TooOften,
)
from horae.web import documents
from horae.web.params import Param

Message = MutableMapping[str, Any]  # the words of ASGI
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
RawHeaders = Sequence[tuple[bytes, bytes]]

ROUTE = "horae.route"  # in a scope: the template of its path, where there is something
BODY_LIMIT = documents.MAX_BYTES
WHOLE = "horae.whole"  # in the scope of a request: its body has arrived
JOINING = "horae.joining"  # in the scope of a request: what sends a head and a body together, if the server has it
BODY_SECONDS = 30.0  # a body that has not arrived by then is given up

_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_PAGE_POLICY = b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
# What every answer says about itself: data, a page to look at, a file that pages use.
DATA: RawHeaders = (
    *_SAFE,
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
# Forms of a page must say from where they come: with no-referrer, browsers call their Origin null.
_SAFE_PAGE = tuple((name, b"same-origin" if name == b"referrer-policy" else value) for name, value in _SAFE)
PAGE: RawHeaders = (*_SAFE_PAGE, (b"content-security-policy", _PAGE_POLICY), (b"cache-control", b"no-store"))
ASSET: RawHeaders = (*_SAFE, (b"content-security-policy", _PAGE_POLICY), (b"cache-control", b"no-cache"))
KEPT_ASSET: RawHeaders = (*ASSET[:-1], (b"cache-control", b"public, max-age=31536000, immutable"))

encode = msgspec.json.Encoder().encode


# ── errors only HTTP knows ─────────────────────────────────────────────────────────────────────────


class NoRoute(NotFound):
    """There is nothing at this address."""


class BadMethod(Error):
    """This address does not take that method."""

    code, status = "E_METHOD", 405

    def __init__(self, method: str, allowed: Iterable[str]) -> None:
        self.allow = ", ".join(sorted(allowed))
        super().__init__(f"{moments.quoted(method)} is not taken here", hint=f"use {self.allow}")


class BadRange(Error):
    """Only one simple byte range can be asked for."""

    code, status = "E_RANGE_HEADER", 416


class BadHost(Error):
    """The Host header names another server."""

    code, status = "E_HOST", 421


class BadOrigin(Denied):
    """The request comes from a page of another site."""

    code = "E_ORIGIN"


class BadHeaders(Error):
    """The request headers are too large."""

    code, status = "E_HEADER", 431


class Unfinished(Malformed):
    """The body did not arrive in time; what comes next on the connection cannot be told."""


class Gone(Exception):
    """The client has left; nobody waits for an answer."""


# ── answers ────────────────────────────────────────────────────────────────────────────────────────


class Answer(Protocol):
    async def send(self, request: Request) -> None: ...


class Reply:
    """A whole answer, ready to be sent."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        content_type: bytes = b"application/json",
        headers: RawHeaders = (),
        about: RawHeaders = DATA,
    ) -> None:
        self.status = status
        self.body = body
        entity = ((b"content-type", content_type), (b"content-length", b"%d" % len(body)))
        self.headers = [*about, *headers] if status in (204, 304) else [*entity, *about, *headers]

    async def send(self, request: Request) -> None:
        joining = request.scope.get(JOINING)
        if joining is not None:
            joining.hold()
        try:
            await request.start(self.status, self.headers)
            body = b"" if request.is_head else self.body
            await request.send({"type": "http.response.body", "body": body})
        finally:
            if joining is not None:
                joining.release()


def reply(status: int, value: Any, headers: RawHeaders = ()) -> Reply:
    """Return a JSON answer."""
    return Reply(status, encode(value), headers=headers)


_BY_STATUS: dict[int, RawHeaders] = {
    401: [(b"www-authenticate", b'Bearer realm="horae"')],
    429: [(b"retry-after", b"5")],
    503: [(b"retry-after", b"1")],
}


def extra_headers(error: Error) -> RawHeaders:
    if isinstance(error, BadMethod):
        return [(b"allow", error.allow.encode())]
    if isinstance(error, TooLarge | Unfinished):  # the rest of the body is not worth reading
        return [(b"connection", b"close")]
    if isinstance(error, TooOften):
        return [(b"retry-after", b"%d" % max(1, math.ceil(error.seconds)))]
    return _BY_STATUS.get(error.status, ())


def problem(error: Error, request_id: str) -> Reply:
    return Reply(error.status, encode(problem_of(error, request_id)), b"application/problem+json", extra_headers(error))


def problem_of(error: Error, request_id: str) -> dict[str, Any]:
    """Return the one shape of every failure (RFC 9457)."""
    shown: dict[str, Any] = {
        "type": f"/docs#{error.code}",
        "title": CODES.get(error.code, HTTPStatus(error.status).phrase),
        "status": error.status,
        "code": error.code,
        "detail": error.message,
        "request_id": request_id,
        "errors": [each.as_dict() for each in error.listed()],
    }
    if error.hint:
        shown["hint"] = error.hint
    return shown


@dataclass(frozen=True, slots=True)
class Shape:
    """How failures look at an address: each contract has its own. `schema` describes it."""

    render: Callable[[Error, Request], Reply]
    media: str = "application/json"
    schema: model.Json = field(default_factory=lambda: {"type": "object"})


PROBLEM = Shape(
    lambda error, request: problem(error, request.id),
    "application/problem+json",
    {"$ref": "#/components/schemas/Problem"},
)


# ── requests ───────────────────────────────────────────────────────────────────────────────────────


def principal(request: Request) -> Principal:
    """Return who asks: the gate lets nobody through to an operation that is not open without knowing it."""
    assert request.who is not None
    return request.who


class Request:
    """One request. `args` holds the query parameters as the operation declares them."""

    args: dict[str, Any]
    shape: Shape = PROBLEM
    is_page: bool = False  # its address is one that people look at
    status = 0  # of the answer, once that has begun
    sent = 0  # bytes of its body
    who: Principal | None = None  # None: a stranger, at an operation that is open
    token: model.Token | None = None  # that it came with
    session: Session | None = None  # that it came with, in the cookie of a browser or of a contract
    has_session: bool = False  # it came with the cookie of one, in place of the token
    prove_again: Callable[[], Awaitable[object]] | None = None  # raises once the token is no longer good
    also: RawHeaders = ()  # headers of every answer to it

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self._send = send
        self.by_name: dict[bytes, bytes] = dict(scope["headers"])

    @property
    def id(self) -> str:
        identity: str = self.scope["horae.request_id"]
        return identity

    @property
    def is_head(self) -> bool:
        return bool(self.scope["method"] == "HEAD")

    async def send(self, message: dict[str, Any]) -> None:
        self.sent += len(message["body"])
        await self._send(message)

    async def start(self, status: int, headers: RawHeaders) -> None:
        self.status = status
        named = (b"x-request-id", self.id.encode())
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *self.also, named]})

    def header(self, name: bytes) -> str | None:
        """Return a header that may stand once."""
        value = self.by_name.get(name)
        if value is None:
            return None
        raw = self.scope["headers"]
        if len(raw) != len(self.by_name) and sum(key == name for key, _ in raw) > 1:
            raise Malformed(f"the header {name.decode()} stands more than once", code="E_HEADER")
        return value.decode("latin-1")

    def path_id(self, name: str) -> int:
        """Return a positive 63-bit number of the path; anything else names nothing that exists."""
        text = self.scope["path_params"][name]
        if not _ID.fullmatch(text) or int(text) > model.LARGEST_ID:
            raise NotFound(f"{moments.quoted(text)} is not an id", hint="ids are whole numbers from 1 up")
        return int(text)

    async def read(self, limit: int = BODY_LIMIT, seconds: float | None = None) -> bytes:
        """Return the body, whole; it has BODY_SECONDS to arrive, unless said."""
        if self.scope.pop(WHOLE, False):  # there is nothing to wait for, nor to time
            return await self._read(limit)
        seconds = BODY_SECONDS if seconds is None else seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._read(limit)
        except TimeoutError:
            raise Unfinished(f"the body did not arrive within {seconds:g} s") from None

    async def _read(self, limit: int) -> bytes:
        declared = self.header(b"content-length")
        if declared and declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
            raise _too_large(declared, limit)
        body = bytearray()
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            body += message["body"]
            if len(body) > limit:
                raise _too_large("more", limit)
            if not message.get("more_body"):
                return bytes(body)

    async def document(self) -> Any:
        """Return the body as a JSON or YAML document."""
        return self.parse(await self.read())

    async def json(self) -> Any:
        """Return the body as JSON, whatever its content type says: clients of the source systems do not say it right.
        None when there is none."""
        body = await self.read()
        return documents.read_json(body) if body.strip() else None

    def parse(self, body: bytes) -> Any:
        return documents.read_document(body, self.header(b"content-type"))

    def idempotency(self, body: bytes) -> Idempotency | None:
        """Return the client's promise, if it made one: the same key never acts twice."""
        key = self.idempotency_key()
        if key is None:
            return None
        act = f"{self.scope['method']} {self.scope['path']}"
        digest = hashlib.sha256(act.encode("utf-8", "surrogatepass") + b"\n" + body).hexdigest()
        return Idempotency(f"{principal(self).scope} {act}", key, digest)

    def idempotency_key(self) -> str | None:
        """Return the key that came with the request, if it is one."""
        key = self.header(b"idempotency-key")
        if key is None:
            return None
        if not 1 <= len(key) <= 200:
            raise Invalid(
                f"an Idempotency-Key has 1 to 200 characters, got {len(key)}", code="E_LEN", path="Idempotency-Key"
            )
        if not _VISIBLE.fullmatch(key):
            raise Invalid("an Idempotency-Key has visible ASCII characters only", code="E_CHAR", path="Idempotency-Key")
        return key

    def expected_version(self) -> int | None:
        """Return the version of If-Match; None when any will do. A tag we never gave out matches nothing."""
        tag = self.header(b"if-match")
        if tag is None or tag.strip() == "*":
            return None
        match = _VERSION_TAG.fullmatch(tag.strip())
        if match is None:
            raise Stale(f"If-Match {moments.quoted(tag)} is not the version of anything", hint='send "7", or *')
        return int(match[1])

    def byte_range(self) -> tuple[int, int | None] | None:
        """(first, last) of a Range header, last None when open."""
        text = self.header(b"range")
        if text is None:
            return None
        match = _RANGE.fullmatch(text)
        if match is None:
            raise BadRange("expected one byte range with a start", hint="send Range: bytes=0-1023, or bytes=1024-")
        first, last = int(match[1]), int(match[2]) if match[2] else None
        if last is not None and last < first:
            raise BadRange(f"the range ends at {last}, before its start {first}")
        return first, last


_ID = re.compile(r"[1-9][0-9]{0,18}")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_VERSION_TAG = re.compile(r'"([0-9]{1,18})"')
_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{1,18})?")


def _too_large(got: str, limit: int) -> TooLarge:
    return TooLarge(f"the body has at most {limit} bytes, got {moments.quoted(got)}")


# ── credentials ────────────────────────────────────────────────────────────────────────────────────


def bearer(request: Request) -> str | None:
    """Return the token of an Authorization header. Another scheme is a wrong token, not a missing one."""
    sent = request.header(b"authorization")
    if sent is None:
        return None
    scheme, _, text = sent.partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


def address_of(request: Request) -> str:
    """Return from where it came; empty where that cannot be told."""
    client = request.scope.get("client")
    return client[0] if client else ""


def wants_page(request: Request) -> bool:
    """Return whether a browser shows the answer to somebody."""
    return b"text/html" in request.by_name.get(b"accept", b"")


def is_secure(request: Request) -> bool:
    return bool(request.scope.get("scheme") == "https")


def session_name(request: Request) -> str:
    """Return the name of the cookie. Over TLS, one that no other host and no page without TLS can have set."""
    return "__Host-horae" if is_secure(request) else "horae"


def session_of(request: Request) -> str | None:
    """Return the session of a browser."""
    return cookie(request, session_name(request)) if b"cookie" in request.by_name else None


def presented(request: Request) -> str | None:
    """As bearer, or the session of a browser."""
    sent = bearer(request)
    return session_of(request) if sent is None else sent


def no_credential(_: Request) -> str | None:
    """Return nothing: whatever login came along is for somebody else. The address, or the body, proves who it is."""
    return None


def basic(request: Request) -> str | None:
    """As bearer, or the password of HTTP Basic."""
    sent = request.header(b"authorization") or ""
    scheme, _, text = sent.partition(" ")
    if scheme.lower() != "basic":
        return bearer(request)
    try:
        return base64.b64decode(text.strip(), validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def cookie(request: Request, name: str) -> str | None:
    for part in (request.header(b"cookie") or "").split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return value
    return None


# ── operations ─────────────────────────────────────────────────────────────────────────────────────

Credential = Callable[[Request], str | None]
Endpoint = Callable[[Request], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Body:
    """What a request body may be. `schema` names a component of openapi.py."""

    schema: str
    example: Any
    required: bool = True
    lines: bool = False  # it may be NDJSON too


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the API. `gives` names the component of the answer's body, or its media type: all that it may have."""

    method: str
    path: str
    endpoint: Endpoint
    tag: str
    summary: str
    gives: str | tuple[str, ...] | None = None
    status: int = 200
    params: tuple[Param, ...] = ()
    body: Body | None = None
    errors: tuple[int, ...] = ()  # beyond those any operation may answer
    also: Mapping[int, str] | None = None  # further successes: status → what it gives
    headers: Mapping[str, str] | None = None  # of the answer: name → description
    is_open: bool = False  # also to strangers, wherever we listen; it must tell them nothing
    shape: Shape = PROBLEM
    credential: Credential = presented  # what proves who asks; None when nothing was sent
    scope: str = "user"  # what the token must be good for
    is_lenient: bool = False  # of another system's contract: what its clients send beyond our rules is ignored
    is_dangerous: bool = False  # a browser's user must have proved to be there a few minutes ago
    shows_secret: bool = False  # the answer has what lets others act: as dangerous, and the audit log tells who read it
    needs: Permission | None = None  # what who asks must be allowed to do; None where it is open

    @property
    def needs_proof(self) -> bool:
        return self.is_dangerous or self.shows_secret

    @property
    def needed(self) -> Permission:
        if self.needs is None and not self.is_open:
            raise ValueError(f"{self.method} {self.path} does not declare which permission it needs")
        return self.needs or Permission.READ


@dataclass(frozen=True, slots=True)
class Area:
    """The addresses of another system's contract: what does not exist at or below `prefix` is refused in its shape."""

    prefix: str
    shape: Shape
    credential: Credential = bearer
    scope: str = "user"
    is_lenient: bool = True

    def holds(self, path: str) -> bool:
        return path == self.prefix or path.startswith(f"{self.prefix}/")
