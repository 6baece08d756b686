"""Settings: those in force, and who may do what here. Each of its pages is for whoever may see it."""

from __future__ import annotations

from typing import Any, NamedTuple

from horae.core.rights import may
from horae.core.roles import PERMISSIONS, Permission, Role, is_within
from horae.service import Services
from horae.service.access.grants import GRANTED
from horae.web import http, params, render
from horae.web.native.grants import shown_grant
from horae.web.pages import filters
from horae.web.pages.shell import HTML, Shell

SHOWN = 200  # of what there may be many of
WORDS = {
    Permission.READ: "look at everything of the organisation but logs and files",
    Permission.LOGS: "read the logs of runs, and the files that they leave",
    Permission.RUN: "run, run again, signal, approve",
    Permission.CANCEL: "cancel runs",
    Permission.PAUSE: "pause and resume jobs",
    Permission.WORK: "take runs and report on them, as a worker from outside",
    Permission.ACKNOWLEDGE: "acknowledge alerts",
    Permission.WRITE: "make, change and delete jobs",
    Permission.ALERTS: "change rules and channels of alerts",
    Permission.SECRETS: "set and delete secrets",
    Permission.QUEUES: "change queues of the organisation",
    Permission.NODES: "let agents of the organisation in, cordon and evict them",
    Permission.CLUSTER: "change queues, nodes, resources and segments of the installation",
    Permission.TOKENS: "make and revoke tokens",
    Permission.USERS: "make users, and say who is a member",
    Permission.AUDIT: "read the audit log",
    Permission.GRANTS: "grant roles on some jobs",
}


class Tab(NamedTuple):
    path: str
    title: str
    needed: Permission


TABS = (
    Tab("/settings", "In force", Permission.READ),
    Tab("/settings/sessions", "Sessions", Permission.READ),
    Tab("/settings/tokens", "Tokens", Permission.TOKENS),
    Tab("/settings/users", "Users", Permission.USERS),
    Tab("/settings/roles", "Roles", Permission.READ),
    Tab("/settings/secrets", "Secrets", Permission.SECRETS),
)


class SettingsPages:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._services = services
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        after = {
            "Users": (filters.optional(params.text("after", "The name of the last user of the page before.", 200)),),
            "Roles": (filters.optional(params.identity("after", "The last grant of the page before.")),),
        }  # fmt: skip
        shows = {
            "In force": self.in_force, "Sessions": self.sessions, "Tokens": self.tokens, "Users": self.users,
            "Roles": self.roles, "Secrets": self.secrets,
        }  # fmt: skip
        return [
            http.Operation(
                "GET", tab.path, shows[tab.title], "pages", f"The page of settings: {tab.title.lower()}", HTML,
                params=after.get(tab.title, ()), needs=tab.needed,
            )
            for tab in TABS
        ]  # fmt: skip

    def _page(self, request: http.Request, template: str, **values: Any) -> http.Answer:
        who = http.principal(request)
        tabs = [tab for tab in TABS if may(who, tab.needed)]
        return self._shell.page(request, template, tabs=tabs, **values)

    async def in_force(self, request: http.Request) -> http.Answer:
        is_ours = may(http.principal(request), Permission.CLUSTER)
        return self._page(request, "settings.html", settings=self._services.settings if is_ours else None)

    async def sessions(self, request: http.Request) -> http.Answer:
        """One's own: who has no account has none."""
        who, sessions = http.principal(request), self._services.access.sessions
        current = request.session.id if request.session else None
        found = [] if who.user_id is None else await sessions.list_of(who.user_id)
        shown = [render.session(it, sessions.idle_at(it), is_current=it.id == current) for it in found]
        return self._page(request, "settings_sessions.html", sessions=shown, has_account=who.user_id is not None)

    async def tokens(self, request: http.Request) -> http.Answer:
        who, access = http.principal(request), self._services.access
        found = await access.list(who)
        return self._page(
            request, "settings_tokens.html", more=max(0, len(found) - SHOWN),
            tokens=[render.token(it, access.state_of(it)) for it in found[:SHOWN]],
            roles=[role for role in Role if is_within(role, who.role)],
        )  # fmt: skip

    async def users(self, request: http.Request) -> http.Answer:
        who, users = http.principal(request), self._services.users
        found = await users.list_users(who, request.args["after"] or "", SHOWN)
        return self._page(
            request, "settings_users.html", users=[render.user(it) for it in found], roles=list(Role),
            organisations={str(it.id): it.name for it in await users.list_organisations(who)},
            members=await users.list_members(who.org, who), runs_installation=await users.runs_installation(who),
            after=found[-1].name if len(found) == SHOWN else None,
        )  # fmt: skip

    async def roles(self, request: http.Request) -> http.Answer:
        who, grants = http.principal(request), None
        if may(who, Permission.GRANTS):
            grants = await self._services.grants.list(who.org, request.args["after"] or 0, SHOWN)
        return self._page(
            request, "settings_roles.html", grants=None if grants is None else [shown_grant(it) for it in grants],
            after=grants[-1].id if grants and len(grants) == SHOWN else None, granted=GRANTED, roles=list(Role),
            permissions=[(str(it), WORDS[it], [it in PERMISSIONS[role] for role in Role]) for it in Permission],
        )  # fmt: skip

    async def secrets(self, request: http.Request) -> http.Answer:
        found = await self._services.secrets.list(http.principal(request).org)
        return self._page(request, "settings_secrets.html", secrets=[render.secret(it) for it in found])
