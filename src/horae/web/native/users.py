"""Users, organisations and their members, under /v1."""

from __future__ import annotations

from typing import Any

from horae import schemas
from horae.core.fields import Fields, shown
from horae.core.foreign_permissions import LONGEST, read_any_role
from horae.core.identity import UserKind
from horae.core.model import DEFAULT_ORG
from horae.core.policy.queues import MOST
from horae.core.roles import ROLE_WORDS, Permission, Role
from horae.service import Services
from horae.service.access.users import INVITE_SECONDS, PAGE
from horae.web import http, params, render
from horae.web.native.bodies import read_fields

USER_EXAMPLE = {"name": "bob", "org": "default", "role": "editor"}


class Users:
    def __init__(self, services: Services) -> None:
        self._users, self._place = services.users, services.public_url

    def operations(self) -> list[http.Operation]:
        op, users, user = http.Operation, "/v1/users", "/v1/users/{name}"
        orgs, members = "/v1/orgs", "/v1/orgs/{org}/members"
        needs = Permission.USERS
        after = params.text("cursor", "Of the page before: where to go on.", 200)
        return [
            op("GET", users, self.list_users, "users", "List users, by name", "UserPage", params=(after,), needs=needs),
            op("POST", users, self.create, "users", "Make a user or a service account", "User", 201,
               body=http.Body("UserRequest", USER_EXAMPLE), errors=(409,), needs=needs, is_dangerous=True),
            op("POST", f"{user}/invite", self.invite, "users", "Make a link to set a password, once", "Invitation", 201,
               errors=(409,), needs=needs, is_dangerous=True),
            op("POST", f"{user}/disable", self.disable, "users", "Refuse a user, with all sessions and tokens", "User",
               errors=(409,), needs=needs, is_dangerous=True),
            op("POST", f"{user}/enable", self.enable, "users", "Let a user in again", "User", needs=needs,
               is_dangerous=True),
            op("POST", f"{user}/link", self.link, "users", "Let a user of a provider be this one", status=204,
               body=http.Body("LinkRequest", {"issuer": "https://id.example.org", "subject": "248289761001"}),
               errors=(409,), needs=needs, is_dangerous=True),
            op("GET", orgs, self.list_orgs, "users", "List organisations", "OrganisationPage", needs=Permission.READ),
            op("POST", orgs, self.create_org, "users", "Make an organisation", "Organisation", 201,
               body=http.Body("OrganisationRequest", {"name": "data"}), errors=(409,), needs=needs, is_dangerous=True),
            op("PATCH", f"{orgs}/{{org}}", self.change_org, "users", "Change the name or the limits of an organisation",
               "Organisation", body=http.Body("OrganisationChanges", {"most_waiting": 1000, "most_jobs": 500}),
               errors=(409,), needs=needs, is_dangerous=True),
            op("DELETE", f"{orgs}/{{org}}", self.delete_org, "users", "Delete an organisation", status=204,
               errors=(409,), needs=needs, is_dangerous=True),
            op("GET", members, self.list_members, "users", "List the members of an organisation", "MemberPage",
               needs=needs),
            op("PUT", f"{members}/{{name}}", self.add_member, "users", "Make a user a member", status=204,
               body=http.Body("MemberRequest", {"role": "editor"}), needs=needs, is_dangerous=True),
            op("DELETE", f"{members}/{{name}}", self.remove_member, "users", "Take a member out", status=204,
               errors=(409,), needs=needs, is_dangerous=True),
        ]  # fmt: skip

    async def list_users(self, request: http.Request) -> http.Answer:
        """All of them to who runs the installation, to others those of their organisation."""
        found = await self._users.list_users(http.principal(request), request.args["cursor"] or "", PAGE)
        cursor = found[-1].name if len(found) == PAGE else None
        return http.reply(200, schemas.UserPage([render.user(it) for it in found], cursor))

    async def create(self, request: http.Request) -> http.Answer:
        """Only who runs the installation. `org` is `*` for all organisations; without `role` the user is a member of
        none. A service account cannot log in: tokens are made for it."""
        who = http.principal(request)
        fields = read_fields(await request.document(), "name", "kind", "email", "org", "role")
        name = _required(fields, "name")
        kind, role = fields.text("kind") or UserKind.PERSON, _role(fields)
        if kind not in set(UserKind):
            fields.fault("kind", "E_ENUM", f"must be one of {', '.join(UserKind)}, got {shown(kind)}")
        org, email = fields.text("org") or str(DEFAULT_ORG), fields.text("email") or ""
        fields.problems.raise_any()
        roles = {} if role is None else {await self._users.find_organisation(org, who): role}
        made = await self._users.create(name, who, kind=UserKind(kind), roles=roles, email=email)
        return http.reply(201, render.user(made))

    async def invite(self, request: http.Request) -> http.Answer:
        """The link is good for a day, and shown this once. Earlier ones are void."""
        user, text = await self._users.invite(_named(request), http.principal(request))
        link = f"{self._place}/login/invite/{text}"
        return http.reply(201, schemas.Invitation(user.name, link, round(INVITE_SECONDS)))

    async def disable(self, request: http.Request) -> http.Answer:
        """This node refuses it at once, every other one within 5 seconds."""
        return await self._set_disabled(request, is_disabled=True)

    async def enable(self, request: http.Request) -> http.Answer:
        """Its tokens are good again; it logs in anew."""
        return await self._set_disabled(request, is_disabled=False)

    async def _set_disabled(self, request: http.Request, *, is_disabled: bool) -> http.Answer:
        who = http.principal(request)
        return http.reply(
            200, render.user(await self._users.set_disabled(_named(request), who, is_disabled=is_disabled))
        )

    async def link(self, request: http.Request) -> http.Answer:
        """Nobody is linked by an address of mail: an admin says who is who."""
        fields = read_fields(await request.document(), "issuer", "subject")
        issuer, subject = _required(fields, "issuer"), _required(fields, "subject")
        fields.problems.raise_any()
        await self._users.link(_named(request), issuer, subject, http.principal(request))
        return http.Reply(204)

    # ── organisations ──

    async def list_orgs(self, request: http.Request) -> http.Answer:
        found = await self._users.list_organisations(http.principal(request))
        return http.reply(200, schemas.OrganisationPage([render.organisation(it) for it in found]))

    async def create_org(self, request: http.Request) -> http.Answer:
        fields = read_fields(await request.document(), "name")
        name = _required(fields, "name")
        fields.problems.raise_any()
        made = await self._users.create_organisation(name, http.principal(request))
        return http.reply(201, render.organisation(made))

    async def change_org(self, request: http.Request) -> http.Answer:
        """Only who runs the installation. What is left out stays; null takes a limit away. `most_waiting` is of the
        runs that anybody asks for: what a schedule makes is never refused. Other nodes go by it within 5 seconds."""
        fields = read_fields(await request.document(), "name", "most_waiting", "most_jobs")
        changes: dict[str, Any] = {
            name: None if fields.values[name] is None else fields.number(name, None, 1, MOST, whole=True)
            for name in ("most_waiting", "most_jobs")
            if name in fields.values
        }
        if "name" in fields.values:
            changes["name"] = fields.text("name") or ""
        fields.problems.raise_any()
        org = await self._org(request)
        return http.reply(
            200, render.organisation(await self._users.change_organisation(org, changes, http.principal(request)))
        )

    async def delete_org(self, request: http.Request) -> http.Answer:
        """Only who runs the installation, and only one without jobs, live runs, queues, agents and sources. Its tokens
        are revoked; its members, grants, secrets and alert rules are gone. What was recorded of it stays."""
        await self._users.delete_organisation(await self._org(request), http.principal(request))
        return http.Reply(204)

    async def list_members(self, request: http.Request) -> http.Answer:
        who = http.principal(request)
        found = await self._users.list_members(await self._org(request), who)
        return http.reply(200, schemas.MemberPage([schemas.Member(it.name, it.role, it.source) for it in found]))

    async def add_member(self, request: http.Request) -> http.Answer:
        """In the place of the role that was said by hand before."""
        fields = read_fields(await request.document(), "role")
        role = _role(fields)
        if role is None and "role" not in fields.values:
            fields.fault("role", "E_REQUIRED", "a member needs a role")
        fields.problems.raise_any()
        assert role is not None, "or a problem was noted"
        await self._users.add_member(await self._org(request), _named(request), role, http.principal(request))
        return http.Reply(204)

    async def remove_member(self, request: http.Request) -> http.Answer:
        await self._users.remove_member(await self._org(request), _named(request), http.principal(request))
        return http.Reply(204)

    async def _org(self, request: http.Request) -> int:
        return await self._users.find_organisation(request.scope["path_params"]["org"], http.principal(request))


def _named(request: http.Request) -> str:
    name: str = request.scope["path_params"]["name"]
    return name


def _required(fields: Fields, name: str) -> str:
    if name not in fields.values:
        fields.fault(name, "E_REQUIRED", f"{name} is needed")
    return fields.text(name) or ""


def _role(fields: Fields) -> Role | None:
    text = fields.text("role", LONGEST)
    if text is None:
        return None
    if (role := read_any_role(text)) is None:
        fields.fault("role", "E_ENUM", f"must be {ROLE_WORDS}, got {shown(text)}")
    return role
