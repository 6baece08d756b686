"""What every HTTP operation needs: requests, answers, problems, query parameters, streams.

An operation is a row: method, path, endpoint, parameters, answers. The row is read three times: by the
gate (app.py) to find and check a request, by openapi.py to describe it, by the docs page to show it.
So what is checked and what is documented cannot drift apart.

What must stay true:
- Every failure leaves as problem+json with a code of errors.CODES, or in the shape of the contract that the
  address belongs to; a fault of ours shows no detail.
- Query parameters are strict: unknown, repeated or unreadable ones are refused, all named at once.
- Nothing is built from the Host header.
- One answer is one `send` of headers and one of body. This is the hot path: 5,000 submits a second.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote

import msgspec

from horae.core import model, moments
from horae.errors import (
    CODES,
    Denied,
    Error,
    Invalid,
    Limited,
    Malformed,
    NotFound,
    Problem,
    Stale,
    TooLarge,
    Unavailable,
)
from horae.ports import Idempotency
from horae.web import documents

Message = MutableMapping[str, Any]  # the words of ASGI
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
RawHeaders = Sequence[tuple[bytes, bytes]]

LARGEST_ID = 2**63 - 1
BODY_LIMIT = documents.MAX_BYTES
BODY_SECONDS = 30.0  # a body that has not arrived by then is given up
HEARTBEAT_SECONDS = 15.0  # between comments on a silent event stream
PROOF_SECONDS = 5.0  # between two looks whether a follower's token is still good
STREAM_LIMIT = 256  # followers at once
QUERY_LIMIT = 64  # parameters in one address

_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_PAGE_POLICY = b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# What every answer says about itself: data, a page to look at, a file that pages use.
DATA: RawHeaders = (
    *_SAFE,
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
PAGE: RawHeaders = (*_SAFE, (b"content-security-policy", _PAGE_POLICY), (b"cache-control", b"no-store"))
ASSET: RawHeaders = (*_SAFE, (b"content-security-policy", _PAGE_POLICY), (b"cache-control", b"no-cache"))

encode = msgspec.json.Encoder().encode


# ── errors only HTTP knows ─────────────────────────────────────────────────────────────────────────


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
        await request.start(self.status, self.headers)
        body = b"" if request.is_head else self.body
        await request.tell({"type": "http.response.body", "body": body})


def reply(status: int, value: Any, headers: RawHeaders = ()) -> Reply:
    """A JSON answer."""
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
    return _BY_STATUS.get(error.status, ())


def problem(error: Error, request_id: str) -> Reply:
    """The one shape of every failure (RFC 9457)."""
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
    return Reply(error.status, encode(shown), b"application/problem+json", extra_headers(error))


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


class Streams:
    """Counts the followers, and can send them all home: a server that ends must not wait for them."""

    def __init__(self, limit: int = STREAM_LIMIT) -> None:
        self.limit = limit
        self.taken = 0
        self.closing = asyncio.Event()

    def take(self) -> None:
        if self.taken >= self.limit:
            raise Limited(
                f"{self.taken} followers are connected, and {self.limit} is the limit",
                code="E_STREAM_LIMIT",
                hint="read the log in pieces, or wait until a follower leaves",
            )
        self.taken += 1

    def close(self) -> None:
        """End every stream; followers reconnect elsewhere and go on where they were."""
        self.closing.set()


class EventStream:
    """Server-sent events. Made with a seat taken from `streams`; gives it back when it ends."""

    media = b"text/event-stream"
    beat = b": still here\n\n"  # said when there was nothing to say for a while
    headers: RawHeaders = ()

    def __init__(self, events: AsyncGenerator[bytes, None], streams: Streams) -> None:
        self._events = events
        self._streams = streams

    async def send(self, request: Request) -> None:
        try:
            await request.start(200, [(b"content-type", self.media), *self.headers, *DATA])
            if not request.is_head:
                await self._pump(request)
            await request.tell({"type": "http.response.body", "body": b""})
        finally:
            self._streams.taken -= 1
            await self._events.aclose()

    async def _pump(self, request: Request) -> None:
        """Pass events on until they end, the client leaves, its token ends, or the server closes its streams."""
        leaving = {
            asyncio.ensure_future(_left(request)),
            asyncio.ensure_future(self._streams.closing.wait()),
            asyncio.ensure_future(_shut_out(request)),
        }
        step = asyncio.ensure_future(anext(self._events, b""))
        try:
            while True:
                done, _ = await asyncio.wait(
                    {step, *leaving}, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if done & leaving or (done and not step.result()):
                    return
                if piece := step.result() if done else self.beat:
                    await request.tell({"type": "http.response.body", "body": piece, "more_body": True})
                if done:
                    step = asyncio.ensure_future(anext(self._events, b""))
        finally:
            await _end({step, *leaving})


class TextStream(EventStream):
    """Plain text as it comes. In it, silence has no sign."""

    media = b"text/plain; charset=utf-8"
    beat = b""


class FileStream(TextStream):
    """A file to be kept, never shown: what it holds is anybody's. Its name is offered by its last part."""

    media = b"application/octet-stream"

    def __init__(self, pieces: AsyncGenerator[bytes, None], streams: Streams, name: str, size: int) -> None:
        super().__init__(pieces, streams)
        shown = quote(name.rpartition("/")[2], safe="")
        self.headers = (
            (b"content-disposition", f"attachment; filename*=UTF-8''{shown}".encode()),
            (b"content-length", b"%d" % size),
        )


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _shut_out(request: Request) -> None:
    """Returns when the token that a stream was opened with is no longer good."""
    while request.prove_again is not None:
        await asyncio.sleep(PROOF_SECONDS)
        try:
            await request.prove_again()
        except Unavailable:
            continue  # nobody can tell just now: the stream was allowed, and goes on
        except Error:
            return
    await asyncio.Event().wait()


async def _end(tasks: set[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def event(name: str, value: Any, event_id: str = "") -> bytes:
    """One server-sent event. JSON keeps the data on one line."""
    where = b"id: %b\n" % event_id.encode() if event_id else b""
    return b"event: %b\n%bdata: %b\n\n" % (name.encode(), where, encode(value))


# ── requests ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks."""

    owner: str
    org: int


LOCAL = Principal("local", model.DEFAULT_ORG)  # whoever comes without a token, while only loopback is listened on


def principal(request: Request) -> Principal:
    """Who asks: the gate lets nobody through to an operation that is not open without knowing it."""
    assert request.who is not None
    return request.who


class Request:
    """One request. `args` holds the query parameters as the operation declares them."""

    args: dict[str, Any]
    shape: Shape = PROBLEM
    who: Principal | None = None  # None: a stranger, at an operation that is open
    token: model.Token | None = None  # that it came with
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

    async def tell(self, message: dict[str, Any]) -> None:
        await self._send(message)

    async def start(self, status: int, headers: RawHeaders) -> None:
        named = (b"x-request-id", self.id.encode())
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *self.also, named]})

    def header(self, name: bytes) -> str | None:
        """A header that may stand once."""
        value = self.by_name.get(name)
        if value is None:
            return None
        raw = self.scope["headers"]
        if len(raw) != len(self.by_name) and sum(key == name for key, _ in raw) > 1:
            raise Malformed(f"the header {name.decode()} stands more than once", code="E_HEADER")
        return value.decode("latin-1")

    def path_id(self, name: str) -> int:
        """A positive 63-bit number of the path; anything else names nothing that exists."""
        text = self.scope["path_params"][name]
        if not _ID.fullmatch(text) or int(text) > LARGEST_ID:
            raise NotFound(f"{moments.quoted(text)} is not an id", hint="ids are whole numbers from 1 up")
        return int(text)

    async def read(self) -> bytes:
        """The body, whole."""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self._read()
        except TimeoutError:
            raise Unfinished(f"the body did not arrive within {BODY_SECONDS:g} s") from None

    async def _read(self) -> bytes:
        declared = self.header(b"content-length")
        if declared and declared.isascii() and declared.isdigit() and int(declared[:20]) > BODY_LIMIT:
            raise _too_large(declared)
        body = bytearray()
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            body += message["body"]
            if len(body) > BODY_LIMIT:
                raise _too_large("more")
            if not message.get("more_body"):
                return bytes(body)

    async def document(self) -> Any:
        """The body as a JSON or YAML document."""
        return self.parse(await self.read())

    async def json(self) -> Any:
        """The body as JSON, whatever its content type says: clients of the source systems do not say it right.
        None when there is none."""
        body = await self.read()
        return documents.read_json(body) if body.strip() else None

    def parse(self, body: bytes) -> Any:
        return documents.read_document(body, self.header(b"content-type"))

    def idempotency(self, body: bytes) -> Idempotency | None:
        """The client's promise, if it made one: the same key never acts twice."""
        key = self.header(b"idempotency-key")
        if key is None:
            return None
        if not 1 <= len(key) <= 200:
            raise Invalid(
                f"an Idempotency-Key has 1 to 200 characters, got {len(key)}", code="E_LEN", path="Idempotency-Key"
            )
        if not _VISIBLE.fullmatch(key):
            raise Invalid("an Idempotency-Key has visible ASCII characters only", code="E_CHAR", path="Idempotency-Key")
        act = f"{self.scope['method']} {self.scope['path']}"
        digest = hashlib.sha256(act.encode("utf-8", "surrogatepass") + b"\n" + body).hexdigest()
        return Idempotency(f"{principal(self).owner} {act}", key, digest)

    def expected_version(self) -> int | None:
        """The version of If-Match; None when any will do. A tag we never gave out matches nothing."""
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


def _too_large(got: str) -> TooLarge:
    return TooLarge(f"the body has at most {BODY_LIMIT} bytes, got {moments.quoted(got)}")


# ── query parameters ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Param:
    """A query parameter (or, with `place`, a header that is only described here)."""

    name: str
    description: str
    schema: model.Json
    read: Callable[[str], Any] = str
    default: Any = None
    place: str = "query"
    many: bool = False  # may be repeated: the values are read as one comma list


def number(name: str, description: str, low: int, high: int, default: int | None = None) -> Param:
    def read(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,30}", text):
            raise Invalid(f"a whole number expected, got {moments.quoted(text)}", code="E_TYPE")
        if not low <= int(text) <= high:
            raise Invalid(f"a number from {low} to {high} expected, got {int(text)}", code="E_RANGE")
        return int(text)

    schema: model.Json = {"type": "integer", "minimum": low, "maximum": high}
    return Param(name, description, schema if default is None else {**schema, "default": default}, read, default)


def identity(name: str, description: str) -> Param:
    return number(name, description, 1, LARGEST_ID)


def boolean(name: str, description: str) -> Param:
    def read(text: str) -> bool:
        if text not in ("true", "false"):
            raise Invalid(f"true or false expected, got {moments.quoted(text)}", code="E_TYPE")
        return text == "true"

    return Param(name, description, {"type": "boolean"}, read)


def text(name: str, description: str, longest: int) -> Param:
    def read(value: str) -> str:
        if not value:
            raise Invalid("text expected, got nothing", code="E_EMPTY")
        if len(value) > longest:
            raise Invalid(f"at most {longest} characters expected, got {len(value)}", code="E_LEN")
        if not value.isprintable():
            raise Invalid("control characters are not allowed", code="E_CHAR")
        return value

    schema = {"type": "string", "minLength": 1, "maxLength": longest}
    return Param(name, description, schema, read)


def moment(name: str, description: str) -> Param:
    return Param(name, description, {"type": "string", "format": "date-time"}, moments.parse_moment)


def words(name: str, description: str, known: Mapping[str, Any]) -> Param:
    """A comma list of known words, read as their values."""

    def read(value: str) -> tuple[Any, ...]:
        wrong = [word for word in value.split(",") if word not in known]
        if wrong:
            hint = f"known are {', '.join(known)}"
            raise Invalid(f"{moments.quoted(wrong[0])} is not known here", code="E_ENUM", hint=hint)
        return tuple(known[word] for word in value.split(","))

    one = "|".join(known)
    return Param(name, description, {"type": "string", "pattern": f"^({one})(,({one}))*$"}, read, ())


CURSOR = Param(
    "cursor",
    "Where the last page ended: the `cursor` it gave.",
    {"type": "string", "pattern": "^[A-Za-z0-9_.:=-]{1,200}$"},
    lambda value: _cursor(value),
)
LIMIT = number("limit", "How many items a page has at most.", 1, 1000, 100)
IDEMPOTENCY = Param(
    "Idempotency-Key",
    "Chosen by the client. Repeating the request with the same key never acts twice.",
    {"type": "string", "pattern": "^[!-~]{1,200}$"},
    place="header",
)
IF_MATCH = Param(
    "If-Match", "The ETag that was read; refused if it is no longer the current one.", {"type": "string"},
    place="header",
)  # fmt: skip


def _cursor(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.:=-]{1,200}", value):
        raise Invalid("this is not a cursor", code="E_PATTERN", hint="give back the cursor of the last page")
    return value


# ── credentials ────────────────────────────────────────────────────────────────────────────────────


def bearer(request: Request) -> str | None:
    """The token of an Authorization header. Another scheme is a wrong token, not a missing one."""
    sent = request.header(b"authorization")
    if sent is None:
        return None
    scheme, _, text = sent.partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


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
    credential: Credential = bearer  # what proves who asks; None when nothing was sent
    scope: str = "user"  # what the token must be good for
    is_lenient: bool = False  # of another system's contract: what its clients send beyond our rules is ignored

    def read_query(self, query: bytes) -> dict[str, Any]:
        """The parameters by name, defaults filled in. All that is wrong is named at once."""
        known = {param.name: param for param in self.params if param.place == "query"}
        values = {name: param.default for name, param in known.items()}
        if not query:
            return values
        wrong: list[Problem] = []
        seen: set[str] = set()
        for name, value in self._given(query, known):
            try:
                values[name] = _read_param(known, seen, name, value)
            except Invalid as error:
                wrong.append(Problem(name[:60], error.code, error.message, error.hint))
        if wrong:
            raise Invalid.of(wrong)
        return values

    def _given(self, query: bytes, known: Mapping[str, Param]) -> list[tuple[str, str]]:
        given = _split_query(query)
        joined: dict[str, list[str]] = {}
        for name, value in given:
            if name in known and known[name].many:
                joined.setdefault(name, []).append(value)
        once = [(name, value) for name, value in given if name not in joined]
        if self.is_lenient:
            once = list({name: value for name, value in once if name in known}.items())
        return [*once, *((name, ",".join(values)) for name, values in joined.items())]


def _split_query(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=QUERY_LIMIT)
    except UnicodeDecodeError:
        raise Malformed("the query of the address is not UTF-8", code="E_ENCODING") from None
    except ValueError:
        raise Invalid(f"at most {QUERY_LIMIT} query parameters expected", code="E_LIMIT") from None


def _read_param(known: Mapping[str, Param], seen: set[str], name: str, value: str) -> Any:
    if name not in known:
        close = moments.nearest(name[:60], list(known))
        hint = f"did you mean {close}?" if close else f"known here: {', '.join(known) or 'none'}"
        raise Invalid("there is no such query parameter here", code="E_UNKNOWN_PARAM", hint=hint)
    if name in seen:
        raise Invalid("this query parameter stands twice", code="E_FIELD_CONFLICT", hint="give it once")
    seen.add(name)
    return known[name].read(value)
