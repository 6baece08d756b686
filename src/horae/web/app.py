"""The ASGI application: one gate before every operation.

    path → size of headers → Host → Origin → token → method → role → query → endpoint → answer, or a failure in its
    shape

The gate finds an operation in a table of rows; the same rows are the OpenAPI document. A framework's router
and middleware would cost as much time again as the HTTP server itself, which a submit cannot afford, and
as much at start as everything else together.

What must stay true:
- A request that fails a check reaches no endpoint.
- What is not open declares which permission it needs, or the process does not start.
- Everybody needs a token, whatever the address: of a user, unless the row says of an agent; only what a row declares
  open (health) answers strangers. On a server that listens on loopback only, the user who runs it needs none
  (`free_pass`; peers.py tells whose a connection is), unless a proxy passed the request on: a Host that is not
  loopback, or a header of one. A token that is sent is always checked.
- Who asks too often waits, and nobody else (rates.py): whoever is known is counted by user, others by address.
- From where a request comes is what its connection says, or, of a proxy that is believed, what that says (proxies.py).
- An unexpected error is logged under the request id and shows nothing of itself.
- Pages of other sites get nothing: while bound to loopback only known hosts are answered (so no foreign
  name can be pointed here), and a foreign Origin is refused, reads included.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import cache, lru_cache, partial
from typing import Protocol
from urllib.parse import urlsplit

import structlog

from horae.core.identity import Principal
from horae.errors import CODES, Error, Limited, Malformed, Unauthenticated
from horae.service import Services
from horae.service.access import HOW_TO_LOG_IN, SESSION, Access
from horae.service.access.credentials import is_ours
from horae.service.audit import Audit
from horae.values import is_loopback
from horae.web import auditing, devices, http, native, openapi, pages, params, peers, sessions
from horae.web.connections import HEADER_BYTES, OWNER
from horae.web.http import Receive, Scope, Send
from horae.web.observing import Observer
from horae.web.proxies import NOBODY, Proxies
from horae.web.streams import STREAM_LIMIT, Streams

HEADER_COUNT = 100
STAY_SECURE = ((b"strict-transport-security", b"max-age=31536000"),)

log = structlog.get_logger(__name__)


@cache
def _pattern(path: str) -> re.Pattern[str]:
    path = path.replace("{path}", "(?P<path>.+)")  # goes on to the end, with its slashes
    return re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path) + r"\Z", re.DOTALL)


def _beginning(path: str) -> str:
    """Return the first two parts of a path."""
    return "/".join(path.split("/", 3)[:3])


class Routes:
    """Which operation answers a method and a path. A path without parameters wins."""

    def __init__(self, operations: Iterable[http.Operation], areas: Iterable[http.Area] = ()) -> None:
        self._areas = sorted(areas, key=lambda area: -len(area.prefix))
        self._exact: dict[str, dict[str, http.Operation]] = {}
        self._patterns: dict[str, dict[str, http.Operation]] = {}
        for operation in operations:
            self._add(operation)
        # Of hundreds of patterns a path is held against those alone that begin as it does.
        self._near = {beginning: self._beginning_with(beginning) for beginning in map(_beginning, self._patterns)}
        self._anywhere = self._beginning_with(None)

    def _add(self, operation: http.Operation) -> None:
        if "{" in operation.path:
            methods = self._patterns.setdefault(operation.path, {})
        else:
            methods = self._exact.setdefault(operation.path, {})
        if operation.method in methods:
            raise ValueError(f"{operation.method} {operation.path} is declared twice")
        assert operation.needed, "or it would have raised"
        methods[operation.method] = operation
        if operation.method == "GET":
            methods["HEAD"] = operation

    def _beginning_with(self, beginning: str | None) -> list[tuple[re.Pattern[str], dict[str, http.Operation]]]:
        """Return the patterns that fit paths with this beginning, in the order in which they were declared."""
        found = ((path, _beginning(path), methods) for path, methods in self._patterns.items())
        return [(_pattern(path), methods) for path, its, methods in found if its == beginning or "{" in its]

    def find(self, path: str) -> tuple[dict[str, http.Operation], dict[str, str]]:
        """Return what a path offers by method, and its parameters; nothing when it is not known."""
        methods = self._exact.get(path)
        if methods is not None:
            return methods, {}
        for pattern, methods in self._near.get(_beginning(path), self._anywhere):
            if match := pattern.match(path):
                return methods, match.groupdict()
        return {}, {}

    def area_of(self, path: str) -> http.Area | None:
        """Whose an address is that is not known: the longest prefix wins."""
        return next((area for area in self._areas if area.holds(path)), None)


ORGANISATION = b"horae-organisation"  # the header that names the one in which to act


class Gate:
    """The application as the HTTP server sees it."""

    def __init__(
        self,
        api: openapi.Api,
        routes: Routes,
        streams: Streams,
        access: Access,
        audit: Audit,
        login_page: Callable[[http.Request, Unauthenticated, str], http.Reply],
        failure_page: Callable[[Error, http.Request], http.Reply],
        refuse_without: Callable[[http.Request, http.Operation], Awaitable[None]],
        *,
        allowed_hosts: Collection[str],
        loopback_only: bool,
        free_pass: Collection[int],
        proxies: Proxies,
    ) -> None:
        self.api = api
        self.streams = streams
        self.observer: Observer | None = None  # who is told of requests
        self._routes = routes
        self._access = access
        self._audit = audit
        self._login_page = login_page
        self._failure_page = failure_page
        self._refuse_without = refuse_without
        self._is_public = not loopback_only
        self._free_pass = frozenset(free_pass)
        self._proxies = proxies
        self._ids = map("{}-{:x}".format, itertools.repeat(secrets.token_hex(5)), itertools.count(1))
        listed = frozenset(name.lower() for name in allowed_hosts)
        self._is_listed = lru_cache(256)(lambda host: _host_name(host) in listed)
        self._is_near = lru_cache(256)(lambda host: is_loopback(_host_name(host)))
        checked = loopback_only or bool(listed)
        self._is_ours: Callable[[str], bool] = lru_cache(256)(
            lambda host: not checked or self._is_listed(host) or self._is_near(host)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(f"only http is served here, not {scope['type']}")
        scope["horae.request_id"] = next(self._ids)
        if self._proxies:
            self._proxies.believe(scope)
        request = http.Request(scope, receive, send)
        if self.observer is None:
            await self._respond(request)
        else:
            await self.observer.watch(request, self._respond)

    async def _respond(self, request: http.Request) -> None:
        scope = request.scope
        if self._is_public and scope.get("scheme") == "https":
            request.also = STAY_SECURE
        try:
            answer = await self._answer(request)
        except http.Gone:
            return
        except Unauthenticated as error:
            await self._note_refused(request, error)
            is_page = http.wants_page(request) and request.shape is http.PROBLEM
            answer = (
                self._login_page(request, error, _wanted(request)) if is_page else request.shape.render(error, request)
            )
        except Exception as error:
            await self._note_refused(request, error)
            shown = _shown(error, request)
            render = self._failure_page if _is_looked_at(request) else request.shape.render
            answer = render(shown, request)
        try:
            await answer.send(request)
        except Exception:  # the headers are out: all that is left is to break off
            log.exception("answer broke off", request_id=request.id, path=shown_path(scope["path"]))

    async def _answer(self, request: http.Request) -> http.Answer:
        scope = request.scope
        methods, scope["path_params"] = self._routes.find(scope["path"])
        operation = methods.get(scope["method"])
        near = operation or next(iter(methods.values()), None) or self._routes.area_of(scope["path"])
        if near is not None:
            request.shape = near.shape
        request.is_page = _is_page(near, scope["path"])
        if methods:
            scope[http.ROUTE] = next(iter(methods.values())).path
        self._check(request)
        await self._admit(request, near)
        if not methods:
            raise http.NoRoute("there is nothing at this address", hint="see /docs for what there is")
        if operation is None:
            raise http.BadMethod(scope["method"], methods)
        if request.who is not None and operation.scope != "agent":
            await self._refuse_without(request, operation)
        if operation.needs_proof and request.session is not None:
            self._access.sessions.refuse_unproven(request.session)
        request.args = params.read_query(operation.params, scope["query_string"], is_lenient=operation.is_lenient)
        if not auditing.is_told(operation):
            return await operation.endpoint(request)
        async with self._audit.watch(auditing.deed_of(request, operation)):
            return await operation.endpoint(request)

    async def _note_refused(self, request: http.Request, error: Exception) -> None:
        """Tell the audit log of whoever may not do this."""
        if isinstance(error, Error) and auditing.is_refusal(error, request):
            methods, _ = self._routes.find(request.scope["path"])
            await self._audit.refuse(auditing.deed_of(request, methods.get(request.scope["method"])), error.code)

    def _check(self, request: http.Request) -> None:
        headers: list[tuple[bytes, bytes]] = request.scope["headers"]
        size = sum([len(name) + len(value) for name, value in headers])
        if size > HEADER_BYTES or len(headers) > HEADER_COUNT:
            raise http.BadHeaders(
                f"at most {HEADER_COUNT} headers of {HEADER_BYTES} bytes expected, got {len(headers)} of {size}"
            )
        host, origin = request.header(b"host") or "", request.header(b"origin")
        if not self._is_ours(host):
            raise http.BadHost(
                "this server does not answer to the name in the Host header",
                hint="use 127.0.0.1 or localhost, or list the name under allowed_hosts",
            )
        if origin is not None:
            self._check_origin(origin, host)

    async def _admit(self, request: http.Request, operation: http.Operation | http.Area | None) -> None:
        """Set who asks, or refuse. The clients of other systems send whatever those wanted: of whoever needs no
        token, only what may be one of ours is looked at. Who has logged in is that user, also where nobody must."""
        sent = operation.credential(request) if operation else http.presented(request)
        address, session = http.address_of(request), http.session_of(request)
        is_session = sent is not None and sent == session
        is_foreign = sent is not None and operation is not None and operation.is_lenient and not is_ours(sent)
        is_user = is_session and await self._user_of(session) is not None
        if (sent is None or is_foreign or (is_session and not is_user)) and self._needs_no_token(request):
            request.who = await self._access.locally(request.header(ORGANISATION))
            return
        if sent is None:
            self._access.rates.take_stranger(address)
        if sent is None and isinstance(operation, http.Operation) and operation.is_open:
            return
        if sent is None and self._free_pass:
            raise Unauthenticated(
                "without a token only the user who runs this server is let in, on this machine and not by a proxy",
                hint=HOW_TO_LOG_IN,
            )
        scope = operation.scope if operation else "user"
        if is_session and scope == "user":
            scope = SESSION
        prove = partial(self._access.admit, sent, scope, address, request.header(ORGANISATION))
        admitted = await prove()
        request.who, request.token, request.prove_again = admitted.who, admitted.token, prove
        request.has_session, request.session = is_session, admitted.session
        if scope != "agent":  # those are bounded by what they run
            self._access.rates.take(admitted.who)
        if is_session:
            _refuse_unnamed_page(request)
        if session is not None and not is_session:
            await self._refuse_two(admitted.who, session)

    async def _refuse_two(self, who: Principal, session: str) -> None:
        """Whose a request is must be plain: a token and a session that is good are of the same user."""
        other = await self._user_of(session)
        if other is not None and (other.name, other.org) != (who.name, who.org):
            raise Malformed(
                "the token is of another user than the session of the cookie",
                code="E_AMBIGUOUS_AUTH",
                hint="send one of them",
            )

    async def _user_of(self, session: str | None) -> Principal | None:
        """Return whose session it is; None: it is not good any more."""
        if session is None:
            return None
        try:
            return (await self._access.admit(session, SESSION)).who
        except (Unauthenticated, Limited):
            return None

    def _needs_no_token(self, request: http.Request) -> bool:
        if request.scope.get(OWNER) not in self._free_pass:
            return False
        is_near = self._is_near(request.header(b"host") or "")
        return is_near and not _was_forwarded(tuple(request.by_name))

    def _check_origin(self, origin: str, host: str) -> None:
        scheme, _, place = origin.partition("://")
        same = place.lower() == host.lower() or self._is_listed(place)
        if scheme not in ("http", "https") or not place or not same:
            raise http.BadOrigin(
                "the request comes from a page of another site", hint="open Horae's own page, or use the CLI"
            )


@lru_cache(64)  # a program sends the same headers with every request
def _was_forwarded(names: tuple[bytes, ...]) -> bool:
    return peers.was_forwarded(name.decode("latin-1") for name in names)


def _refuse_unnamed_page(request: http.Request) -> None:
    """What changes anything with the cookie of a browser says from which page it comes, as browsers do."""
    is_reading = request.scope["method"] in ("GET", "HEAD")
    if not is_reading and request.header(b"origin") is None and request.header(b"sec-fetch-site") != "same-origin":
        raise http.BadOrigin(
            "a request with the cookie of a session must say from which page it comes",
            hint="send an Origin header as browsers do; programs send a token: Authorization: Bearer …",
        )


def _wanted(request: http.Request) -> str:
    """Return where somebody wanted to go who must log in first."""
    if request.scope["method"] != "GET":
        return "/device" if request.scope["path"] == "/device" else "/"
    query = request.scope["query_string"].decode("latin-1")
    return sessions.place(request.scope["path"] + (f"?{query}" if query else ""))


def _is_page(near: http.Operation | http.Area | None, path: str) -> bool:
    """Return whether an address is one of a page, or of nothing at all; never of the API or of a contract."""
    if near is None:
        return not f"{path}/".startswith("/v1/")
    return isinstance(near, http.Operation) and near.gives == pages.HTML


def _is_looked_at(request: http.Request) -> bool:
    """Return whether somebody sees the answer in a browser; scripts that read a page again do not."""
    return request.is_page and http.wants_page(request) and request.header(b"sec-fetch-dest") in (None, "document")


def _shown(error: Exception, request: http.Request) -> Error:
    """Return what may be told of a failure."""
    if isinstance(error, Error) and (error.status < 500 or error.status == 503):
        return error
    log.error("request failed", request_id=request.id, path=shown_path(request.scope["path"]), exc_info=error)
    return Error(CODES["E_INTERNAL"])


def shown_path(path: str) -> str:
    """Return a path as it may stand in a log: the last part of an address that nobody needs a login for is a secret."""
    return re.sub(
        r"^(/login/invite/|/v1/(?:(?:hooks|callbacks)/.*/|pings/[^/]*/)).+", r"\1******", path, flags=re.DOTALL
    )


def _host_name(host: str) -> str:
    """Return the name of `name:port`, lower case; empty when it is not one."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


# ── the factory ────────────────────────────────────────────────────────────────────────────────────


class Contract(Protocol):
    """What another system's clients ask for, in its own words."""

    def operations(self) -> Sequence[http.Operation]: ...

    def areas(self) -> Sequence[http.Area]:
        """Whose addresses are its own, also where there is nothing."""


def create_app(
    services: Services,
    contracts: Sequence[Callable[[Services, Streams], Contract]],
    *,
    version: str,
    allowed_hosts: Collection[str] = (),
    loopback_only: bool = True,
    free_pass: Collection[int] = (),
    proxies: Proxies = NOBODY,
    stream_limit: int = STREAM_LIMIT,
) -> Gate:
    """Everything that is served over HTTP. `free_pass` has the ids of the users who need no token; what `proxies` tell
    of who asks is believed. Call `streams.close()` before the server waits for its end."""
    streams = Streams(stream_limit)
    api = openapi.Api(version, needs_login=not free_pass)
    own = native.Native(services, streams)
    dashboard = pages.Dashboard(services, own.cluster, api, version)
    browsers = sessions.Sessions(services, dashboard.entrance)
    programs = devices.DevicePages(services, dashboard.entrance)
    theirs = [contract(services, streams) for contract in contracts]
    asked = [operation for contract in theirs for operation in contract.operations()]
    operations = [*own.operations(), *map(own.organisations.guarded, dashboard.operations())]
    operations += [*browsers.operations(), *programs.operations(), *asked]
    areas = [area for contract in theirs for area in contract.areas()]
    api.describe(operations)
    return Gate(
        api, Routes(operations, areas), streams, services.access, services.audit,
        partial(dashboard.entrance.login, was_tried=False), dashboard.failures.show, own.organisations.refuse_without,
        allowed_hosts=allowed_hosts, loopback_only=loopback_only, free_pass=free_pass, proxies=proxies,
    )  # fmt: skip
