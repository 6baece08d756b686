"""Logging in with a browser: a token is exchanged for a session, which a cookie names and no script can read.

    GET /login → form → POST /login (token) → cookie, back to where one wanted to go → POST /logout

What must stay true:
- The token itself is kept nowhere: neither in the page, nor in a cookie, nor in a log.
- A page of another site can neither log somebody in nor act with the cookie: its Origin is refused by the gate, and the
  cookie is not sent along with what such a page posts (SameSite).
- Nobody is sent to another site after a login.
- Whoever needs no token (the user who runs a server on loopback) needs no session: a cookie of theirs is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qs

from horae.core.roles import Permission
from horae.errors import Error, Limited, Unauthenticated
from horae.service.access import SESSION_SECONDS, Access
from horae.web import http, params

FORM_BYTES = 16 << 10
_HERE = re.compile(r"/(?![/\\])[\x21-\x7e]{0,2000}")  # a path of this server, and of no other

LoginPage = Callable[[Error | None, str], http.Reply]  # why somebody was refused, where to go then


def _named(request: http.Request, text: str, seconds: float) -> tuple[bytes, bytes]:
    secure = "; Secure" if http.is_secure(request) else ""
    name = http.session_name(request)
    return b"set-cookie", f"{name}={text}; Max-Age={seconds:.0f}; HttpOnly; SameSite=Lax; Path=/{secure}".encode()


class Sessions:
    """The endpoints of logging in and out with a browser."""

    def __init__(self, access: Access, page: LoginPage) -> None:
        self._access = access
        self._page = page

    def operations(self) -> list[http.Operation]:
        op, html = http.Operation, "text/html"
        cookie, where = {"Set-Cookie": "The session."}, params.text("next", "The path to go on to.", 2000)
        return [
            op("GET", "/login", self.show, "pages", "The login page", html, params=(where,), is_open=True,
               credential=http.no_credential),
            op("POST", "/login", self.login, "pages", "Log in with a token, by a form", status=303, headers=cookie,
               errors=(429,), is_open=True, credential=http.no_credential),
            op("POST", "/logout", self.logout, "pages", "End the session", status=303, headers=cookie,
               needs=Permission.READ),
        ]  # fmt: skip

    async def show(self, request: http.Request) -> http.Answer:
        return self._page(None, place(request.args["next"]))

    async def login(self, request: http.Request) -> http.Answer:
        """Takes a form with `token` and `next`. The session ends with its token, and after half a day."""
        token, following = _read_form(await request.read(FORM_BYTES))
        client = request.scope.get("client")
        try:
            known = await self._access.check(token or None, "user", client[0] if client else "")
        except (Unauthenticated, Limited) as error:
            if not http.wants_page(request):
                raise
            return self._page(error, following)
        session = await self._access.open_session(known)
        return _onward(following, _named(request, session, SESSION_SECONDS))

    async def logout(self, request: http.Request) -> http.Answer:
        """Ends the session of the cookie, here at once and on every node within seconds. A token stays good."""
        if (text := http.session_of(request)) is not None:
            await self._access.end_session(text)
        return _onward("/login", _named(request, "", 0))


def place(text: str | None) -> str:
    """Return a path of this server: where somebody wanted to go, or the overview."""
    return text if text is not None and _HERE.fullmatch(text) else "/"


def _onward(path: str, cookie: tuple[bytes, bytes]) -> http.Reply:
    return http.Reply(303, headers=[(b"location", path.encode()), cookie])


def _read_form(body: bytes) -> tuple[str, str]:
    """Return the token and the place of a form; what is no form has neither."""
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=params.QUERY_LIMIT)
    except ValueError:
        fields = {}
    return fields.get("token", [""])[0].strip(), place(fields.get("next", ["/"])[0])
