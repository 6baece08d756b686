"""Logging in with a browser: a token, a password or a provider's word is exchanged for a session, which a cookie names
and no script can read.

    GET /login → form → POST /login (token, or name and password) → cookie, back to where one wanted to go
    GET /login/sso → the provider → GET /login/callback → the same
    GET /login/invite/… → form → POST /login/invite (password) → the same

What must stay true:
- Neither token nor password is kept: not in the page, nor in a cookie, nor in a log.
- A page of another site can neither log somebody in nor act with the cookie: its Origin is refused by the gate, and the
  cookie is not sent along with what such a page posts (SameSite). What comes back from a provider must belong to a
  login that this browser began: a cookie of its own has the secret of it.
- Every login makes a new session, and ends the one that the browser had.
- Nobody is sent to another site after a login.
- Whoever needs no token (the user who runs a server on loopback) needs no session: a cookie that is not good any more
  is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qs, quote, unquote

from horae.core.roles import Permission
from horae.errors import Error
from horae.service import Services
from horae.service.access import Admitted
from horae.service.access.sessions import Origin
from horae.web import auditing, http, params

FORM_BYTES = 16 << 10
ANEW = "anew"  # in the cookie of a login that began in order to prove again to be there
BEGUN_SECONDS = 900  # that somebody may take at a provider
_HERE = re.compile(r"/(?![/\\])[\x21-\x7e]{0,2000}")  # a path of this server, and of no other
_STATE = re.compile(r"[A-Za-z0-9_-]{43}")


class Pages(Protocol):
    def login(
        self, request: http.Request, error: Error | None, following: str, *, was_tried: bool = True,
        is_anew: bool = False,
    ) -> http.Reply:  # fmt: skip
        """Return the form; why somebody was refused, where to go then, whether to prove again to be there."""

    def invitation(self, request: http.Request, error: Error | None, text: str) -> http.Reply: ...


def named(request: http.Request, text: str, seconds: float, name: str = "") -> tuple[bytes, bytes]:
    """Return the cookie of a session, or of a login that has begun."""
    secure = "; Secure" if http.is_secure(request) else ""
    name = http.session_name(request) + name
    return b"set-cookie", f"{name}={text}; Max-Age={seconds:.0f}; HttpOnly; SameSite=Lax; Path=/{secure}".encode()


def origin_of(request: http.Request) -> Origin:
    agent = request.by_name.get(b"user-agent", b"").decode("ascii", "replace")
    return Origin(http.address_of(request), re.sub(r"[^\x20-\x7e]", "?", agent))


class Sessions:
    """The endpoints of logging in and out with a browser."""

    def __init__(self, services: Services, pages: Pages) -> None:
        self._access, self._logins, self._audit = services.access, services.logins, services.audit
        self._pages = pages

    def operations(self) -> list[http.Operation]:
        op, html = http.Operation, "text/html"
        cookie, where = {"Set-Cookie": "The session."}, params.text("next", "The path to go on to.", 2000)
        anew = params.boolean("anew", "Whether to prove again to be there.")
        stranger: Mapping[str, Any] = {"is_open": True, "credential": http.no_credential}
        words = [params.text(name, about, 4000) for name, about in _CALLBACK]
        return [
            op("GET", "/login", self.show, "pages", "The login page", html, params=(where, anew), **stranger),
            op("POST", "/login", self.login, "pages", "Log in with a token, or with name and password, by a form",
               status=303, headers=cookie, errors=(403, 429), **stranger),
            op("GET", "/login/sso", self.begin, "pages", "Log in by the identity provider", status=303,
               params=(where, anew), errors=(409, 503), **stranger),
            op("GET", "/login/callback", self.complete, "pages", "Where the identity provider sends browsers back to",
               status=303, params=tuple(words), headers=cookie, errors=(403, 409, 503), is_lenient=True, **stranger),
            op("GET", "/login/invite/{invitation}", self.show_invitation, "pages", "The page to set a password", html,
               **stranger),
            op("POST", "/login/invite", self.accept, "pages", "Set the password of an invitation, by a form",
               status=303, headers=cookie, errors=(403, 429), **stranger),
            op("POST", "/organisation", self.switch, "pages", "Go on in another organisation, by a form", status=303,
               errors=(403, 409), needs=Permission.READ),
            op("POST", "/logout", self.logout, "pages", "End the session", status=303, headers=cookie,
               needs=Permission.READ),
        ]  # fmt: skip

    async def show(self, request: http.Request) -> http.Answer:
        return self._pages.login(request, None, place(request.args["next"]), is_anew=bool(request.args["anew"]))

    async def login(self, request: http.Request) -> http.Answer:
        """Takes a form with `token`, or `name` and `password`, and `next`."""
        form = read_form(await request.read(FORM_BYTES))
        following = place(form.get("next"))
        return await self._enter(request, following, lambda: self._by_form(request, form))

    async def _by_form(self, request: http.Request, form: Mapping[str, str]) -> str:
        if form.get("name") or form.get("password"):
            return await self._logins.by_password(form.get("name", ""), form.get("password", ""), origin_of(request))
        token = form.get("token", "").strip() or None
        known = await self._access.check(token, "user", http.address_of(request))
        return await self._access.open_session(known, origin_of(request))

    async def begin(self, request: http.Request) -> http.Answer:
        following, is_anew = place(request.args["next"]), bool(request.args["anew"])
        try:
            begun = await self._logins.begin(is_anew=is_anew)
        except Error as error:
            return await self._refused(request, error, following)
        text = f"{begun.secret}.{ANEW if is_anew else ''}.{quote(following, safe='')}"
        return _onward(begun.url, named(request, text, BEGUN_SECONDS, _begun_as(begun.state)))

    async def complete(self, request: http.Request) -> http.Answer:
        """The provider's answer must belong to a login that this browser began."""
        asked = {name: value for name, value in request.args.items() if value is not None}
        suffix = _begun_as(asked.get("state", ""))
        begun = (http.cookie(request, http.session_name(request) + suffix) or "").split(".", 2)
        secret, how, kept = [*begun, "", ""][:3]
        answer = await self._enter(
            request, place(unquote(kept)),
            lambda: self._logins.complete(secret, asked, origin_of(request), is_anew=how == ANEW),
        )  # fmt: skip
        answer.headers.append(named(request, "", 0, suffix))
        return answer

    async def show_invitation(self, request: http.Request) -> http.Answer:
        return self._pages.invitation(request, None, request.scope["path_params"]["invitation"][:200])

    async def accept(self, request: http.Request) -> http.Answer:
        """Takes a form with `invitation` and `password`."""
        form = read_form(await request.read(FORM_BYTES))
        invitation = form.get("invitation", "")
        try:
            session = await self._logins.accept(invitation, form.get("password", ""), origin_of(request))
        except Error as error:
            if not http.wants_page(request):
                raise
            await auditing.note_page(self._audit, error, request)
            return self._pages.invitation(request, error, invitation)
        return await self._entered(request, "/", session)

    async def switch(self, request: http.Request) -> http.Answer:
        """Takes a form with `org`, a name or number, and `next`. The session remembers it: on this node at once, on
        every other within 5 seconds."""
        form = read_form(await request.read(FORM_BYTES))
        admitted = Admitted(http.principal(request), request.token, request.session)
        await self._access.switch(admitted, form.get("org", "").strip())
        return _onward(place(form.get("next")))

    async def logout(self, request: http.Request) -> http.Answer:
        """Ends the session of the cookie, here at once and on every node within seconds. A token stays good."""
        if (text := http.session_of(request)) is not None:
            await self._access.sessions.leave(text)
        return _onward("/login", named(request, "", 0))

    async def _enter(
        self, request: http.Request, following: str, open_session: Callable[[], Awaitable[str]]
    ) -> http.Reply:
        try:
            session = await open_session()
        except Error as error:
            return await self._refused(request, error, following)
        return await self._entered(request, following, session)

    async def _entered(self, request: http.Request, following: str, session: str) -> http.Reply:
        if (before := http.session_of(request)) is not None:
            await self._access.sessions.leave(before)
        return _onward(following, named(request, session, self._access.sessions.limits.absolute))

    async def _refused(self, request: http.Request, error: Error, following: str) -> http.Reply:
        if not http.wants_page(request):
            raise error
        await auditing.note_page(self._audit, error, request)
        return self._pages.login(request, error, following)


_CALLBACK = (
    ("code", "What the provider vouches by."),
    ("state", "Of which login it is."),
    ("iss", "Of which issuer it is."),
    ("error", "Why the provider refuses."),
)


def _begun_as(state: str) -> str:
    """Return what the cookie of a login that has begun adds to the name: several may have begun in one browser."""
    return f"-{state[:12]}" if _STATE.fullmatch(state) else "-"


def place(text: str | None) -> str:
    """Return a path of this server: where somebody wanted to go, or the overview."""
    return text if text is not None and _HERE.fullmatch(text) else "/"


def _onward(path: str, *cookies: tuple[bytes, bytes]) -> http.Reply:
    return http.Reply(303, headers=[(b"location", path.encode()), *cookies])


def read_form(body: bytes) -> dict[str, str]:
    """Return the fields of a form; what is no form has none."""
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=params.QUERY_LIMIT, errors="strict")
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}
