"""Who asks, its sessions, and programs that wait to be let in, under /v1."""

from __future__ import annotations

from horae import schemas
from horae.core.roles import Permission
from horae.errors import Conflict
from horae.service import Services
from horae.service.access.devices import CODE_SECONDS, INTERVAL
from horae.web import http, render
from horae.web.native.bodies import read_fields

DEVICE_EXAMPLE = {"device_code": "horae_d_7_…"}


class Logins:
    def __init__(self, services: Services) -> None:
        self._access, self._devices = services.access, services.devices
        self._place = f"{services.public_url}/device"

    def operations(self) -> list[http.Operation]:
        op, sessions = http.Operation, "/v1/sessions"
        return [
            op("GET", "/v1/me", self.who, "users", "Tell who asks", "Me", needs=Permission.READ),
            op("DELETE", "/v1/me/token", self.leave, "users", "Revoke the token that asks", status=204, errors=(409,),
               needs=Permission.READ),
            op("GET", sessions, self.list_sessions, "users", "List one's own sessions, newest first", "SessionPage",
               errors=(409,), needs=Permission.READ),
            op("DELETE", f"{sessions}/{{session_id}}", self.end_session, "users", "End a session of one's own",
               status=204, errors=(409,), needs=Permission.READ),
            op("POST", "/v1/device", self.begin, "users", "Ask to be let in as whoever confirms a code", "DeviceLogin",
               errors=(429,), is_open=True, credential=http.no_credential),
            op("POST", "/v1/device/token", self.fetch, "users", "Fetch the token that was approved", "NewToken",
               body=http.Body("DeviceTokenRequest", DEVICE_EXAMPLE), errors=(403, 429), is_open=True,
               credential=http.no_credential),
        ]  # fmt: skip

    async def who(self, request: http.Request) -> http.Answer:
        it = http.principal(request)
        return http.reply(200, schemas.Me(it.name, it.org, it.role, it.via, it.user_id, list(it.orgs)))

    async def leave(self, request: http.Request) -> http.Answer:
        """This node refuses it at once, every other one within 5 seconds."""
        if request.token is None or request.session is not None:
            raise Conflict(
                "who asks came without a token", code="E_NO_ACCOUNT", hint="a browser logs out: POST /logout"
            )
        await self._access.revoke(request.token.id, http.principal(request))
        return http.Reply(204)

    async def list_sessions(self, request: http.Request) -> http.Answer:
        current = request.session.id if request.session else None
        found = await self._access.sessions.list_of(_user_of(request))
        items = [render.session(it, self._access.sessions.idle_at(it), is_current=it.id == current) for it in found]
        return http.reply(200, schemas.SessionPage(items))

    async def end_session(self, request: http.Request) -> http.Answer:
        """This node refuses it at once, every other one within 5 seconds."""
        await self._access.sessions.end_own(_user_of(request), request.path_id("session_id"))
        return http.Reply(204)

    async def begin(self, request: http.Request) -> http.Answer:
        begun = await self._devices.begin(http.address_of(request))
        shown = schemas.DeviceLogin(begun.secret, begun.code, self._place, round(CODE_SECONDS), round(INTERVAL))
        return http.reply(200, shown)

    async def fetch(self, request: http.Request) -> http.Answer:
        """400 with `E_DEVICE_PENDING` until somebody has decided; 429 with `E_DEVICE_SLOW_DOWN` to who asks too
        often."""
        fields = read_fields(await request.document(), "device_code")
        if "device_code" not in fields.values:
            fields.fault("device_code", "E_REQUIRED", "the device_code of POST /v1/device is needed")
        code = fields.text("device_code") or ""
        fields.problems.raise_any()
        token, text = await self._devices.fetch(code)
        return http.reply(200, render.new_token(token, self._access.state_of(token), text))


def _user_of(request: http.Request) -> int:
    user_id = http.principal(request).user_id
    if user_id is None:
        raise Conflict(
            "sessions belong to users, and who asks has no account",
            code="E_NO_ACCOUNT",
            hint="log in with a name, or by the identity provider",
        )
    return user_id
